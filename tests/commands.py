"""Commands in processes of their own that have the imports behind them: forks of a prepared one.

A new Python imports for a second before it refuses a wrong option in a millisecond.
"""

import atexit
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path

USED = ("tts.cli", "tts.checks", "tts.session", "tts.lab.bench.single_run")
"""What most commands import."""


CODE = "from tests.commands import serve"


class PreparedCommands:
    """The process that is forked, and what it is asked by: one command at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"from tests.commands import serve; serve({theirs.fileno()})",
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd=Path(__file__).parents[1],
            )
        self._said = ours.makefile("rw")
        ours.close()

    def run(
        self, arguments: list[str], variables: dict[str, str], timeout_s: float
    ) -> tuple[int, str, str]:
        """The exit code, the standard output and error of `tts` with these arguments, in /."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / name for name in ("out", "err")]
            asked = {"arguments": arguments, "variables": variables, "timeout_s": timeout_s}
            self._said.write(json.dumps({**asked, "files": list(map(str, files))}) + "\n")
            self._said.flush()
            code = int(self._said.readline())
            out, err = (file.read_text(encoding="utf-8") for file in files)
            return code, out, err

    def end(self) -> None:
        """End the process."""
        self._said.close()
        self._process.wait()


@cache
def prepared() -> PreparedCommands:
    """The one of this process."""
    commands = PreparedCommands()
    atexit.register(commands.end)
    return commands


def serve(number: int) -> None:
    """Fork for each command that is asked for, until the other side is gone."""
    for name in USED:
        importlib.import_module(name)
    with socket.socket(fileno=number) as connection, connection.makefile("rw") as said:
        for line in said:
            asked = json.loads(line)
            child = os.fork()
            if child == 0:
                become(**asked)
            _, status = os.waitpid(child, 0)
            said.write(f"{os.waitstatus_to_exitcode(status)}\n")
            said.flush()


def become(
    arguments: list[str], variables: dict[str, str], files: list[str], timeout_s: float
) -> None:
    """Be the command, as if this process had just begun; it does not return."""
    from tts.cli import main

    code = 70
    try:
        signal.setitimer(signal.ITIMER_REAL, timeout_s)  # SIGALRM ends the process
        for number, file in enumerate(files, start=1):
            opened = os.open(file, os.O_WRONLY | os.O_CREAT)
            os.dup2(opened, number)
            os.close(opened)
        os.environ.clear()
        os.environ.update(variables)
        os.chdir("/")
        sys.argv = ["tts", *arguments]
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
