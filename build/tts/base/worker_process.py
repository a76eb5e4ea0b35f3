"""A process that answers requests within limits of memory and time: both ends.

A worker is a module that calls `serve`, run as a program with MB SECONDS by `WorkerProcess`. A
request is a line of JSON, `[number, content]`; its answer is one, too, `[number, CPU seconds,
content]`, without content where the memory did not suffice. Before the first request the worker
says `[0, 0.0, null]`. It ends with its input, so it cannot outlive its parent, and limits itself to
MB of address space and, per request, SECONDS of CPU time: a busy machine ends no more of them.

The function that answers may be a generator: it yields a note of its next step and returns its
answer. Each such line goes to the parent as `[number, null, text]`, which then knows what the
worker was lost in.

A worker that owes an answer is never asked again: whatever cuts a request short, Ctrl-C above all,
ends the worker, and the next request starts another. A fresh interpreter is started, never a fork
of this process; a fork of this process starts workers of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from .errors import WorkerUnavailable

_START_S = 60.0
_STALL_S = 300.0  # by the clock, and only against a worker that gets no processor time
_ATTEMPTS = 2  # the first worker may have been lost through others
_OTHERS = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP)  # who ends one from outside
_CHUNK_BYTES = 65536


class Loss(Enum):
    """How a request has ended a worker, or two of them."""

    MEMORY = "it needed more memory than it may have"
    CPU = "it took more CPU time than it may"
    STALLED = "it did not answer"
    CRASHED = "it crashed"


class WorkerLost(Exception):
    """A request was not answered: it cost its worker."""

    def __init__(self, loss: Loss, cpu_s: float, doing: str = "", status: int = 0) -> None:
        super().__init__(loss.value)
        self.loss = loss
        self.cpu_s = cpu_s
        """CPU time that it took, at most."""
        self.doing = doing
        """What the worker said last that it does; empty for one that says nothing."""
        self.status = status
        """Exit status of a worker that crashed: below 0, the signal that ended it."""


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """What a worker answered, and the CPU time it took."""

    content: Any
    cpu_s: float


class WorkerProcess:
    """One worker process, started at the first request and replaced when it is lost.

    `ask` may be called from any thread, and waits for its turn; `stop` may be called meanwhile.
    """

    def __init__(self, module: str, does: str, *, cpu_s: float, memory_mb: int) -> None:
        """`module` calls `serve`; `does` says what the worker does, as in "renders"."""
        self._does = does
        self._cpu_s = cpu_s
        # by PYTHONPATH no folder could be named that has a colon; its modules are those of here
        path = [entry or str(Path.cwd()) for entry in sys.path]
        code = f"import sys; sys.path[:] = {path!a}; import runpy; runpy.run_module({module!a}, "
        code += "run_name='__main__', alter_sys=True)"
        self._command = [sys.executable, "-c", code, str(memory_mb), str(cpu_s)]
        self._number = 0
        self._doing = ""
        self._stopped = False
        self._alone()
        _WORKERS.add(self)

    def _alone(self) -> None:
        """Start without a process or users."""
        self._process: subprocess.Popen[bytes] | None = None
        self._owes = False
        """Whether the process is yet to answer, or to say that it has started."""
        self._unread = b""
        self._asking = threading.Lock()
        self._starting = threading.Lock()  # against stopping

    @property
    def pid(self) -> int | None:
        """Process id of the running worker."""
        return self._process.pid if self._process else None

    def ask(self, content: Any) -> WorkerAnswer:
        """A request's answer; raises WorkerLost, WorkerUnavailable, RuntimeError if stopped."""
        loss, failure, status = Loss.CRASHED, "", 0
        with self._asking:
            for _ in range(_ATTEMPTS):
                started = False
                try:
                    self._ensure_started()
                    started = True
                    return self._exchange(content)
                except TimeoutError:
                    self.reap()
                    loss = Loss.STALLED
                except (EOFError, OSError, ValueError) as error:
                    status = self.reap() or 0
                    if status == -signal.SIGPROF:  # the worker's limit on its own CPU time
                        raise WorkerLost(Loss.CPU, self._cpu_s, self._doing) from None
                    loss = Loss.CRASHED
                    if started and status < 0 and status not in _OTHERS:  # such as out of memory
                        break
                    failure = f": {error.strerror}" if isinstance(error, OSError) else ""
                except BaseException:
                    self.reap()  # its answer would be taken for that to the next request
                    raise
                if self._stopped:
                    raise self._closed()
        if started:
            raise WorkerLost(loss, self._cpu_s, self._doing, status)
        raise WorkerUnavailable(
            f"The worker process that {self._does} does not start{failure}.",
            hint=f"See why with: {shlex.join(self._command)} </dev/null",
        )

    def stop(self) -> None:
        """Kill the worker and start no other: a request under way ends at once."""
        with self._starting:
            self._stopped = True
            process = self._process  # read once: the asking thread may be reaping it
            if process:
                process.kill()

    def reap(self) -> int | None:
        """Kill the worker if there is one, release what the system keeps of it: its exit code."""
        process, status = self._process, None
        if process is not None:
            self._owes = True  # if this is interrupted, the next request does it again
            process.kill()
            _close_pipes(process)
            status = process.wait()
        self._process, self._unread, self._owes = None, b"", False
        return status

    def forget(self) -> None:
        """Leave the worker to the process of which this one is a fork."""
        process = self._process
        self._alone()
        if process is not None:
            _close_pipes(process)  # the worker waits for the end of its input
            process.returncode = 0  # it is no child of this process, which cannot wait for it

    def _ensure_started(self) -> None:
        if self._owes:
            self.reap()  # a second Ctrl-C came while the first one ended it
        if self._process:
            return
        with self._starting:
            if self._stopped:
                raise self._closed()
            self._owes = True
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=environment(),
                start_new_session=True,  # out of reach of the terminal's Ctrl-C
            )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        try:
            self._take(0, b"", time.monotonic() + _START_S)
        except TimeoutError:  # not the request's fault: no sign of life is no worker
            raise EOFError from None

    def _exchange(self, content: Any) -> WorkerAnswer:
        self._number += 1
        self._doing = ""
        request = _encoded([self._number, content]) + b"\n"
        self._owes = True
        deadline = time.monotonic() + _STALL_S + 10 * self._cpu_s
        cpu_s, *parts = self._take(self._number, request, deadline)
        while cpu_s is None:
            (self._doing,) = parts
            cpu_s, *parts = self._take(self._number, b"", deadline)
        if not parts:
            self.reap()
            raise WorkerLost(Loss.MEMORY, cpu_s, self._doing)
        return WorkerAnswer(parts[0], cpu_s)

    def _take(self, number: int, request: bytes, deadline: float) -> list[Any]:
        """Send a request, and read the answer of this number: what stands behind that."""
        line = self._read_line(request, deadline)
        fields: list[Any]
        answered, *fields = json.loads(line)
        if answered != number:
            raise ValueError(f"an answer to request {answered}, not to {number}")
        self._owes = fields[:1] == [None]  # it has only said what it does
        return fields

    def _read_line(self, request: bytes, deadline: float) -> bytes:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin.fileno(), process.stdout.fileno()
        poller = select.poll()
        poller.register(answers, select.POLLIN)
        if request:
            poller.register(requests, select.POLLOUT)
        pieces, rest = [self._unread], memoryview(request)
        while b"\n" not in pieces[-1]:
            left_s = deadline - time.monotonic()
            ready = dict(poller.poll(left_s * 1000)) if left_s > 0 else {}
            if not ready:
                raise TimeoutError
            if requests in ready:
                rest = rest[os.write(requests, rest[:_CHUNK_BYTES]) :]
                if not rest:
                    poller.unregister(requests)
            if answers in ready:
                chunk = os.read(answers, _CHUNK_BYTES)
                if not chunk:
                    raise EOFError
                pieces.append(chunk)
        line, _, self._unread = b"".join(pieces).partition(b"\n")
        return line

    def _closed(self) -> RuntimeError:
        return RuntimeError(f"the worker process that {self._does} is closed")


def _encoded(value: Any) -> bytes:
    """JSON; no other thread runs while it is made, and of a long chat json's takes 30 ms."""
    import msgspec  # which no worker needs

    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(value).encode()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()


def environment() -> dict[str, str]:
    """What a worker needs and no more: it evaluates what strangers wrote, so it gets no secrets."""
    inherited = {
        name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ
    }
    return inherited | {
        "PYTHONSAFEPATH": "1",  # or the working directory would come before all of these
        "PYTHONHASHSEED": "0",  # sympy's order of terms follows hashes: equal runs, equal verdicts
    }


_WORKERS: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()


def _forget_all() -> None:
    for worker in _WORKERS:
        worker.forget()


os.register_at_fork(after_in_child=_forget_all)


def serve(load: Callable[[], Callable[[Any], Any]]) -> None:
    """Answer requests until the input ends; `load` gives what answers one, within the limits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    # The default action ends the process even inside one long C call, and when its parent is gone.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    memory_mb, cpu_s = int(sys.argv[1]), float(sys.argv[2])
    limit(resource.RLIMIT_AS, memory_mb << 20)
    limit(resource.RLIMIT_CORE, 0)
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print; answers are ours alone
    answer = load()
    _send(answers, 0, 0.0, None)
    for line in sys.stdin.buffer:
        number, content = json.loads(line)
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        try:
            result = answer(content)
            if isinstance(result, Generator):
                result = _finish(result, partial(_send, answers, number, None))
        except MemoryError:
            # What libraries have cached would starve the next request: a fresh worker follows.
            _send(answers, number, time.process_time() - began)
            return
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(answers, number, time.process_time() - began, result)


def _finish(steps: Generator[str, None, Any], say: Callable[[str], None]) -> Any:
    while True:
        try:
            say(next(steps))
        except StopIteration as end:
            return end.value


def limit(kind: int, most: int) -> None:
    """Lower a limit of this process, such as resource.RLIMIT_AS; one that is lower stays."""
    hard = resource.getrlimit(kind)[1]  # the user's, which cannot be raised
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (least, least))


def _send(descriptor: int, *fields: Any) -> None:
    # An answer may be longer than a pipe takes at once.
    line = json.dumps(fields).encode() + b"\n"
    while line:
        line = line[os.write(descriptor, line) :]
