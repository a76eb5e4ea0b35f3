"""The parent's handle of one grading worker: start it, ask it, replace it when it is lost.

Blocking, for use by one thread at a time; only `stop` may be called from any other. A fresh
interpreter is started (never a fork of this process) with an environment of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts.build.errors import TtsError

from .sketch import Parsed, Sketch
from .verdict import Outcome, Reason, Verdict

_START_TIMEOUT_S = 60.0
_STALL_TIMEOUT_S = 300.0  # by the clock, and only against a worker that gets no processor time
_ATTEMPTS = 2  # the first worker may have been lost through others; the second by this question
_CLOSED = "the grader is closed"
_MODULE = "tts.grading.worker"


class GraderUnavailable(TtsError):
    """The grading worker does not start: a fault of the installation, not of an answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker answered, and the CPU time it took.

    The content is a `Parsed` answer or a verdict: of a comparison, or why there is no other.
    """

    content: Parsed | Verdict
    cpu_s: float


class WorkerProcess:
    """One worker process, started at the first question and replaced when it is lost."""

    def __init__(self, *, cpu_s: float, memory_mb: int) -> None:
        self._cpu_s = cpu_s
        self._command = [sys.executable, "-P", "-m", _MODULE, str(memory_mb), str(cpu_s)]
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._stopped = False
        self._lock = threading.Lock()  # starting against stopping

    @property
    def pid(self) -> int | None:
        """Process id of the running worker."""
        return self._process.pid if self._process else None

    def ask(self, task: str, *answers: str) -> Reply:
        """Have the worker `read` an answer or `compare` two (prediction, reference).

        Raises GraderUnavailable if no worker starts, RuntimeError after `stop`.
        """
        lost = Reason.CRASHED
        for _ in range(_ATTEMPTS):
            started = False
            try:
                self._ensure_started()
                started = True
                return self._exchange([task, *answers])
            except TimeoutError:
                self.reap()
                lost = Reason.TIMEOUT
            except (EOFError, OSError, ValueError):
                if self.reap() == -signal.SIGPROF:  # the worker's limit on its own CPU time
                    return Reply(Verdict(Outcome.UNDECIDED, Reason.TIMEOUT), self._cpu_s)
                lost = Reason.CRASHED
            except BaseException:
                self.reap()  # its reply would be taken for that to the next question
                raise
            if self._stopped:
                raise RuntimeError(_CLOSED)
        if started:
            return Reply(Verdict(Outcome.UNDECIDED, lost), self._cpu_s)
        raise GraderUnavailable(
            "The grading worker, which runs math-verify, does not start.",
            hint=f"See why with: {sys.executable} -m {_MODULE} 512 2 </dev/null",
        )

    def stop(self) -> None:
        """Kill the worker and start no other: a question under way ends at once."""
        with self._lock:
            self._stopped = True
            process = self._process  # read once: the asking thread may be reaping it
            if process:
                process.kill()

    def reap(self) -> int | None:
        """Kill the worker if there is one, release what the system keeps of it: its exit code."""
        process, self._process, self._unread = self._process, None, b""
        if process is None:
            return None
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        return process.wait()

    def _ensure_started(self) -> None:
        if self._process:
            return
        with self._lock:
            if self._stopped:
                raise RuntimeError(_CLOSED)
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=_environment(),
                start_new_session=True,  # out of reach of the terminal's Ctrl-C
            )
        try:
            self._read_line(time.monotonic() + _START_TIMEOUT_S)
        except TimeoutError:  # not the question's fault: no sign of life is no worker
            raise EOFError from None

    def _exchange(self, request: list[str]) -> Reply:
        assert self._process is not None
        assert self._process.stdin is not None
        limit = time.monotonic() + _STALL_TIMEOUT_S + 10 * self._cpu_s
        # Fits the pipe's buffer (Grader caps the length), so it cannot block on a stuck worker.
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        return _reply(json.loads(self._read_line(limit)))

    def _read_line(self, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        replies = self._process.stdout.fileno()
        poller = select.poll()
        poller.register(replies, select.POLLIN)
        while b"\n" not in self._unread:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poller.poll(left_s * 1000):
                raise TimeoutError
            chunk = os.read(replies, 65536)
            if not chunk:
                raise EOFError
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def _reply(fields: list[Any]) -> Reply:
    cpu_s, kind, content = fields
    if kind == "verdict":
        outcome, reason = content
        return Reply(Verdict(Outcome(outcome), Reason(reason)), cpu_s)
    texts, has_formula, sketch = content
    return Reply(Parsed(tuple(texts), has_formula, sketch and Sketch.from_json(sketch)), cpu_s)


def _environment() -> dict[str, str]:
    """What the worker needs and no more: sympy evaluates strings, so it gets no secrets."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {
        "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path),
        "PYTHONHASHSEED": "0",  # sympy's order of terms follows hashes: equal runs, equal verdicts
    }
