"""Are two answers equal? The public face of grading.

Shortcuts decide most pairs without leaving the process; the rest goes to worker processes that are
killed when they overrun. Whatever an answer contains, a verdict comes back.
"""

from __future__ import annotations

import asyncio
import queue
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from .canonical import canonical, is_integer
from .process import WorkerProcess
from .screen import is_too_costly
from .verdict import Outcome, Reason, Verdict

DEFAULT_DEADLINE_S = 2.0
DEFAULT_MEMORY_MB = 512
MAX_ANSWER_CHARS = 2000  # two of them, escaped as JSON, fit the 64 KiB buffer of a pipe


class Grader:
    """Compares answers; use it as a context manager, `async with` or `with`.

    `equal` and `equal_sync` may be mixed and called from many tasks and threads. Workers start at
    the first pair that needs one and stay warm. A pair is compared once, however often it is
    asked; (prediction, reference) is ordered, for math-verify lets the reference set the form:
    1 does not answer "2x+z=1", while "k=1" answers 1.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        deadline_s: float = DEFAULT_DEADLINE_S,
        memory_mb: int = DEFAULT_MEMORY_MB,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers is {workers}; at least one is needed")
        if deadline_s <= 0:
            raise ValueError(f"deadline_s is {deadline_s}; it must be positive")
        self._workers = [
            WorkerProcess(deadline_s=deadline_s, memory_mb=memory_mb) for _ in range(workers)
        ]
        self._idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="grader")
        self._memo: dict[tuple[str, str], Verdict] = {}
        self._closed = False

    async def equal(self, prediction: str | None, reference: str) -> Verdict:
        """Whether `prediction` answers `reference`. A cancelled call leaves the grader usable.

        Raises GraderUnavailable if the workers do not start; no answer makes it raise.
        """
        verdict = self._begin(prediction, reference)
        return verdict if isinstance(verdict, Verdict) else await asyncio.wrap_future(verdict)

    def equal_sync(self, prediction: str | None, reference: str) -> Verdict:
        """`equal` for code without an event loop."""
        verdict = self._begin(prediction, reference)
        return verdict if isinstance(verdict, Verdict) else verdict.result()

    def close(self) -> None:
        """Kill the workers and wait for them; takes milliseconds, and may be repeated.

        A comparison under way ends with RuntimeError.
        """
        self._closed = True
        for worker in self._workers:
            worker.stop()
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.reap()

    async def aclose(self) -> None:
        """`close`; it never yields to the event loop, so it cannot be cancelled half-way."""
        self.close()

    def worker_pids(self) -> list[int]:
        """Process ids of the running workers."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    def _begin(self, prediction: str | None, reference: str) -> Verdict | Future[Verdict]:
        if prediction is None or not prediction.strip():
            return Verdict(Outcome.DIFFERENT, Reason.NO_ANSWER)
        verdict = self._decide_here(prediction, reference)
        return verdict or self._submit(prediction, reference)

    def _decide_here(self, prediction: str, reference: str) -> Verdict | None:
        """The verdict, if no worker is needed for it."""
        if prediction == reference:
            return Verdict(Outcome.EQUAL, Reason.IDENTICAL)
        if max(len(prediction), len(reference)) > MAX_ANSWER_CHARS:
            return Verdict(Outcome.UNDECIDED, Reason.TOO_LONG)
        forms = canonical(prediction), canonical(reference)
        if forms[0] == forms[1]:
            return Verdict(Outcome.EQUAL, Reason.CANONICAL)
        if is_integer(forms[0]) and is_integer(forms[1]):
            return Verdict(Outcome.DIFFERENT, Reason.INTEGERS)
        if is_too_costly(prediction) or is_too_costly(reference):
            return Verdict(Outcome.UNDECIDED, Reason.TOO_COSTLY)
        return self._memo.get((prediction, reference))

    def _submit(self, prediction: str, reference: str) -> Future[Verdict]:
        if self._closed:
            raise RuntimeError("the grader is closed")
        return self._threads.submit(self._ask, prediction, reference)

    def _ask(self, prediction: str, reference: str) -> Verdict:
        """Runs on a thread of the pool; there are as many threads as workers."""
        worker = self._idle.get()
        try:
            # Asked for again while it was being compared: the answer has come in by now.
            verdict = self._memo.get((prediction, reference))
            if verdict is None:
                verdict = worker.ask(prediction, reference)
                self._memo[prediction, reference] = verdict
            return verdict
        finally:
            self._idle.put(worker)

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Grader:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
