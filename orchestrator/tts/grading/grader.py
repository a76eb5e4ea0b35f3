"""Are two answers equal, and which of many are? The public face of grading.

Shortcuts decide most pairs without leaving the process; the rest goes to worker processes that end
when they overrun. Whatever an answer contains, a verdict comes back.
"""

from __future__ import annotations

import os
import queue
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from msgspec import convert

from tts.base.owner import Owner
from tts.base.worker_process import Loss, WorkerLost, WorkerProcess

from .canonical import canonical
from .problem_grader import Outcome, ProblemGrader, Reason, Reply, Verdict
from .sketch import Parsed

DEFAULT_CPU_S = 2.0
DEFAULT_PROBLEM_CPU_S = 30.0
DEFAULT_MEMORY_MB = 512
_MOST_WORKERS = 4  # each holds about 100 MB
_KEPT_REPLIES = 20_000
_REASONS = {
    Loss.MEMORY: Reason.MEMORY,
    Loss.CPU: Reason.TIMEOUT,
    Loss.STALLED: Reason.TIMEOUT,
    Loss.CRASHED: Reason.CRASHED,
}

_CONTENTS: dict[str, type[Parsed] | type[Verdict]] = {"parsed": Parsed, "verdict": Verdict}


class Grader:
    """Compares answers; use it as an asynchronous context manager.

    `equal` may be called from many tasks, and from the event loops of several threads. Workers, one
    per core and four at most by default, start when they are needed and stay warm. Each answer is
    parsed once and each pair compared once, however often it is asked; (prediction, reference) is
    ordered, for math-verify lets the reference set the form: 1 does not answer "2x+z=1", while
    "k=1" answers 1.

    `cpu_s` is the processor time that parsing an answer or comparing two may take, `problem_cpu_s`
    all the work for one `problem()`.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        cpu_s: float = DEFAULT_CPU_S,
        problem_cpu_s: float = DEFAULT_PROBLEM_CPU_S,
        memory_mb: int = DEFAULT_MEMORY_MB,
    ) -> None:
        if workers is None:
            workers = min(len(os.sched_getaffinity(0)), _MOST_WORKERS)
        self._problem_cpu_s = problem_cpu_s
        self._workers = [
            WorkerProcess("tts.grading.worker", "grades", cpu_s=cpu_s, memory_mb=memory_mb)
            for _ in range(workers)
        ]
        # The last one used comes first: it is warm, and has parsed the answers at hand.
        self._idle: queue.LifoQueue[WorkerProcess] = queue.LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="grader")
        self._replies: dict[tuple[str, ...], Future[Reply]] = {}
        self._lock = threading.Lock()  # of the replies
        self._closed = False
        self._owner = Owner("This grader")

    def problem(self) -> ProblemGrader:
        """A grader of the answers of one problem, within its own CPU budget."""
        return ProblemGrader(self._ask, self._problem_cpu_s)

    async def equal(self, prediction: str | None, reference: str) -> Verdict:
        """Whether `prediction` answers `reference`. A cancelled call leaves the grader usable.

        Raises WorkerUnavailable if the workers do not start, ForkError in a fork of the process
        that made the grader; no answer makes it raise.
        """
        return await self.problem().equal(prediction, reference)

    def close(self) -> None:
        """Kill the workers; may be repeated. A comparison under way ends with RuntimeError."""
        self._closed = True
        for worker in self._workers:
            worker.stop()
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.reap()

    def worker_pids(self) -> list[int]:
        """Process ids of the running workers."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    def _ask(self, *request: str) -> Future[Reply]:
        """What a worker makes of `read`, answer or `compare`, prediction, reference; asked once.

        A failed request is forgotten. Raises RuntimeError after `close`.
        """
        self._owner.require()
        with self._lock:
            reply = self._replies.get(request)
            if reply is None or (reply.done() and reply.exception()):
                if self._closed:
                    raise RuntimeError("the grader is closed")
                while len(self._replies) >= _KEPT_REPLIES:
                    del self._replies[next(iter(self._replies))]
                reply = self._replies[request] = self._threads.submit(self._ask_worker, request)
            return reply

    def _ask_worker(self, request: tuple[str, ...]) -> Reply:
        """Runs on a thread of the pool; there are as many threads as workers."""
        worker = self._idle.get()
        try:
            answer = worker.ask(request)
        except WorkerLost as error:
            return Reply(Verdict(Outcome.UNDECIDED, _REASONS[error.loss]), error.cpu_s)
        finally:
            self._idle.put(worker)
        kind, content = answer.content
        return Reply(convert(content, _CONTENTS[kind]), answer.cpu_s)

    async def __aenter__(self) -> Grader:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()  # it never yields to the event loop, so it cannot be cancelled half-way


_PERCENT_SIGN = re.compile(r"\s*\\?%(?=\W*\Z)")


class Equality(Protocol):
    """Whatever says whether two answers are equal: `Grader`, or a function of the user's own."""

    async def equal(self, prediction: str | None, reference: str) -> Verdict:
        """Whether `prediction` answers `reference`."""


async def group_answers(
    answers: Sequence[str | None], grader: Equality, form: Callable[[str], str] = canonical
) -> list[int]:
    """Group index per answer: equal answers share one, groups count from 0 as they appear.

    Which answers share a group does not depend on their order: answers of one `form` are equal,
    and the forms join the first group whose representative they equal, the longest form first, for
    it says most. Those with a percent sign come last, and all are read alike: without the sign if
    one of them equals another answer so, else as hundredths. None and blanks are no answers and get
    -1.
    """
    texts: dict[str, str] = {}
    for answer in answers:
        if answer is not None and answer.strip():
            key = form(answer)
            texts[key] = min(answer, texts.get(key, answer), key=lambda text: (len(text), text))
    order = sorted(texts, key=lambda key: (-len(texts[key]), texts[key]))
    representatives: list[str] = []

    async def find(answer: str) -> int | None:
        for group, representative in enumerate(representatives):
            verdict = await grader.equal(answer, representative)
            # whether "1,22" has a decimal comma only the author of a reference is taken to know
            if verdict.equal and verdict.reason is not Reason.DECIMAL_COMMA:
                return group
        return None

    group_of: dict[str, int] = {}

    async def join(key: str, answer: str) -> None:
        group = await find(answer)
        if group is None:
            group = len(representatives)
            representatives.append(answer)
        group_of[key] = group

    for key in order:
        if not _PERCENT_SIGN.search(texts[key]):
            await join(key, texts[key])
    numbers = {key: _PERCENT_SIGN.sub("", texts[key]) for key in order if key not in group_of}
    for number in numbers.values():
        if await find(number) is not None:
            texts |= numbers
            break
    for key in numbers:
        await join(key, texts[key])
    index: dict[int, int] = {}
    return [
        index.setdefault(group_of[form(answer)], len(index)) if answer and answer.strip() else -1
        for answer in answers
    ]
