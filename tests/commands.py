"""Commands in processes of their own that have the imports behind them: forks of a prepared one.

A new Python imports for a second before it refuses a wrong option in a millisecond.
"""

import atexit
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

USED = (
    "tts.cli.doctor",
    "tts.cli.engines",
    "tts.cli.report",
    "tts.cli.runs",
    "tts.endpoints.openai.server",
    "tts.gateway.process",
    "tts.serving.server.start",
)
"""What most commands import."""


class Command:
    """A command that runs in a fork; in the words of `subprocess.Popen`, whose child it is not."""

    def __init__(self, outputs: Sequence[int], ending: int) -> None:
        self.returncode: int | None = None
        self.stdout, self.stderr = (os.fdopen(file, encoding="utf-8") for file in outputs)
        self._ending = os.fdopen(ending)
        self.pid = int(self._ending.readline())

    def poll(self) -> int | None:
        """The exit code, or none of a command that runs; negative: the signal that ended it."""
        if self.returncode is None and select.select([self._ending], [], [], 0)[0]:
            self.returncode = int(self._ending.readline())
            self._ending.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, as soon as there is one."""
        if self.returncode is None:
            select.select([self._ending], [], [], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("tts", timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All that it has still to say, and its end; nothing more where it was asked before."""
        said = ["", ""]

        def read(number: int) -> None:
            file = (self.stdout, self.stderr)[number]
            if not file.closed:
                with file:
                    said[number] = file.read()

        readers = [threading.Thread(target=read, args=(n,), daemon=True) for n in range(2)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired("tts", timeout or 0)
        self.wait(timeout)
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class PreparedCommands:
    """The process that is forked, and what it is asked by."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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

    def start(
        self, arguments: list[str], variables: dict[str, str], ignored: Sequence[int] = ()
    ) -> Command:
        """`tts` with these arguments, begun in / and in a session of its own.

        The signals `ignored` it inherits as such, as from `nohup`.
        """
        pipes = [os.pipe() for _ in range(3)]
        try:
            files = [writable for _, writable in pipes]
            self._ask(files, arguments=arguments, variables=variables, ignored=ignored)
        finally:
            for _, writable in pipes:
                os.close(writable)
        out, err, ending = (readable for readable, _ in pipes)
        return Command([out, err], ending)

    def run(
        self, arguments: list[str], variables: dict[str, str], timeout_s: float
    ) -> tuple[int, str, str]:
        """The exit code, the standard output and error of `tts` with these arguments, in /.

        What it says goes to files, which others whom it starts may keep open.
        """
        readable, writable = os.pipe()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                files = [out.fileno(), err.fileno(), writable]
                self._ask(files, arguments=arguments, variables=variables)
            finally:
                os.close(writable)
            command = Command([os.dup(out.fileno()), os.dup(err.fileno())], readable)
            with command.stdout, command.stderr:
                try:
                    code = command.wait(timeout_s)
                except subprocess.TimeoutExpired:
                    command.kill()
                    code = command.wait()
                for file in (command.stdout, command.stderr):
                    file.seek(0)
                return code, command.stdout.read(), command.stderr.read()

    def _ask(self, files: list[int], **asked: Any) -> None:
        socket.send_fds(self._connection, [json.dumps(asked).encode()], files)

    def end(self) -> None:
        """End the process."""
        self._connection.close()
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
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who watches a command is waited for by nobody
    with socket.socket(fileno=number) as connection:
        while True:
            asked, files, _, _ = socket.recv_fds(connection, 2**20, 3)
            if not asked:
                return
            if os.fork() == 0:
                connection.close()
                watch(files, **json.loads(asked))
            for file in files:
                os.close(file)


def watch(files: list[int], **asked: Any) -> None:
    """Fork once more for the command, and say its number and how it ended; it does not return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    out, err, ending = files
    child = os.fork()
    if child == 0:
        os.close(ending)
        become([out, err], **asked)
    os.close(out)
    os.close(err)
    os.write(ending, f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    os.write(ending, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(
    outputs: list[int],
    arguments: list[str],
    variables: dict[str, str],
    ignored: Sequence[int] = (),
) -> None:
    """Be the command, as if this process had just begun; it does not return."""
    from tts.cli import main

    code = 70
    try:
        os.setsid()
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        for number, file in enumerate(outputs, start=1):
            os.dup2(file, number)
            os.close(file)
        # new ones, as the old ones know of other files
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
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
