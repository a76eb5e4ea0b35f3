"""Processes of peers: one that is asked line by line, one that serves; halted while others run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from .environments import Unavailable

START_S = 900.0
"""vLLM compiles at its first start, which takes minutes."""
VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
"""Nothing is asked of a network; one GiB of cache; a worker's engine runs in the worker itself."""


class Process:
    """A process in a group of its own, halted unless it is being measured."""

    def __init__(self, words: Sequence[str | Path], log: Path, **pipes: Any) -> None:
        """Start it; what it says goes to `log`."""
        self.log = log
        with log.open("wb") as said:
            self.process = subprocess.Popen(
                words,
                stderr=said,
                start_new_session=True,
                env=os.environ | VARIABLES,
                **{"stdout": said} | pipes,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.go_on()
        self._signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                if pipe:
                    pipe.close()

    def halt(self) -> None:
        """Take no processor time until `go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Run again."""
        self._signal(signal.SIGCONT)

    def ended(self) -> Unavailable:
        """Why there is no answer: the end of what the process said."""
        said = self.log.read_text(errors="replace")[-1500:]
        return Unavailable(f"A peer has ended ({self.process.args!r}):\n{said}")

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended, which the next question tells
            os.killpg(self.process.pid, number)


class Worker(Process):
    """A process that answers one line of JSON with one line of JSON."""

    def __init__(self, words: Sequence[str | Path], log: Path) -> None:
        """Start it and wait until it is ready; raises Unavailable."""
        super().__init__(words, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self._answer()
        except BaseException:
            self.__exit__()
            raise
        self.halt()

    def ask(self, question: Mapping[str, object]) -> dict[str, Any]:
        """What it answers; raises Unavailable."""
        assert self.process.stdin is not None
        self.go_on()
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.ended() from None
        answer = self._answer()
        self.halt()
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise self.ended()
        answer: dict[str, Any] = json.loads(line)
        return answer


class Server(Process):
    """A process that serves HTTP at a port of this machine."""

    def __init__(self, words: Sequence[str | Path], port: int, log: Path) -> None:
        """Start it and wait until it answers; raises Unavailable."""
        super().__init__(words, log)
        self.port = port
        deadline = time.monotonic() + START_S
        try:
            while not answers(port):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise self.ended()
                time.sleep(0.2)
        except BaseException:
            self.__exit__()
            raise
        self.halt()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def answers(port: int) -> bool:
    """Whether a server says that it is well."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
