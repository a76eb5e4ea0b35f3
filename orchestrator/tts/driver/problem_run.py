"""One problem's running search: its asks become jobs, answers become results.

    search ──ask──► expand ─┬─ resumed, or the context is full ────────────────► tell at once
                            └─ else ────────────────► job ─► scheduler
                    score ──┬─ locked, resumed, or too long to be scored ──────► tell at once
                            ├─ equal to a pending one ─► waits for that answer
                            └─ else ────────────────► job ─► scheduler

Token ids come from the problem's context, and shared scores from its cache. The scheduler says when
a job goes, the dispatcher sends it, and the driver hands its answer to `take_in`. What speculation
adds is in `speculation`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from tts.problem import Problem
from tts.prompting import Context
from tts.scheduling import Job, Kind, Prefetch, Scheduler
from tts.search import (
    Expand,
    Generated,
    NodePath,
    ResumedWork,
    Score,
    Scored,
    Search,
    SearchResult,
    Stop,
    Thought,
    Work,
)

from .records import Answer, CancelReason, SharedScore, Started, TakeRecord
from .score_cache import ScoreCache

FULL = (Thought((), "", Stop.LENGTH),)
"""The answer to a prompt that fills the engine's context."""


@dataclass(frozen=True)
class Runtime:
    """The objects that all problems of a driver share."""

    scheduler: Scheduler
    record: TakeRecord
    clock: Callable[[], float]
    cancel: Callable[[Job, CancelReason], None]
    """Cancel a job that was sent, for this reason."""
    prefetch: bool
    """Whether prompts are sent ahead of the siblings that begin with them."""


@dataclass(frozen=True, slots=True)
class Solved:
    """A finished search; its result names the limit that ended it, if any."""

    problem: Problem
    search: Search
    result: SearchResult


@dataclass(eq=False)
class Submission:
    """Await it for the problem's result; cancelling the wait cancels the search.

    `number` is unique within its driver; older problems have smaller ones.

    Raises the TtsError that ended the search, DeadlineExceeded, or CancelledError.
    """

    number: int
    problem: Problem
    new_search: Callable[[], Search]
    priority: int
    resumed: ResumedWork
    on_result: Callable[[Generated | Scored], None] | None
    outcome: asyncio.Future[Solved]
    search: Search | None = field(default=None, init=False)
    """The search; None until the problem is started."""

    def __await__(self) -> Generator[Any, None, Solved]:
        return self.outcome.__await__()

    @property
    def done(self) -> bool:
        """Whether the search has ended: solved, failed or cancelled."""
        return self.outcome.done()

    def cancel(self) -> None:
        """End the search; its requests in flight are cancelled on the engines."""
        self.outcome.cancel()


class ProblemRun:
    """A started problem."""

    def __init__(
        self, submission: Submission, context: Context, search: Search, runtime: Runtime
    ) -> None:
        self.submission = submission
        self.number = submission.number
        self.context = context
        self.search = search
        self._known = dict(submission.resumed.thoughts)
        """Thoughts that the search may ask for and that need no request."""
        self._priority = submission.priority
        self._resumed = submission.resumed
        self._on_result = submission.on_result
        self._runtime = runtime
        self._scores = ScoreCache(leader_first=runtime.prefetch)
        self._first_asks: list[Work] = []
        """The first work, while it waits for the problem's prompt to be prefetched."""

    @property
    def problem_id(self) -> str:
        """The problem's id."""
        return self.context.problem.id

    def start(self) -> None:
        """Ask the search for its first work."""
        runtime = self._runtime
        runtime.record(Started(runtime.clock(), self.context.problem))
        asks = self.search.ask()
        runtime.scheduler.problem_asked(self.number, asks)
        if runtime.prefetch and not self._resumed.thoughts and len(asks) > 1:
            self._first_asks = asks
            self._add(Prefetch(len(asks)), len(self.context.generator_ids(())), Kind.EAGER)
        else:
            self._advance(asks, Kind.EAGER)

    def take_in(self, job: Job, answer: Answer) -> None:
        """Give a job's answer to the search."""
        work = job.work
        if isinstance(work, Prefetch):
            asks, self._first_asks = self._first_asks, []
            self._advance(asks, Kind.EAGER)
            return
        if isinstance(work, Expand):
            assert isinstance(answer, tuple)
            self._tell_generated(work.node, answer)
        else:
            assert isinstance(answer, float)
            self._share_score(work.node, answer)
            self._release(job)
        self._advance(self.search.ask(), Kind.MAIN)

    def _advance(self, asks: list[Work], kind: Kind) -> None:
        """Turn what the search asks for into jobs until it asks for nothing more."""
        while asks:
            for work in asks:
                if isinstance(work, Expand):
                    self._ask_expand(work, kind)
                else:
                    self._ask_score(work, kind)
            asks = self.search.ask()
        for node in self.search.unwanted():
            self._drop_score(node)
        for node in self.search.needed():
            if job := self._scores.job(self.context.score_key(node)):
                self._runtime.scheduler.needed(job)

    def _ask_expand(self, work: Expand, kind: Kind) -> None:
        node = work.node
        if thoughts := self._known.get(node):
            self._tell_generated(node, thoughts)
        elif self.context.room(node[:-1]) <= 0:
            self._tell_generated(node, FULL)
        else:
            self._add(work, len(self.context.generator_ids(node[:-1])), kind)

    def _ask_score(self, work: Score, kind: Kind) -> None:
        node, cache = work.node, self._scores
        if work.own_turn:
            self.context.give_own_turn(node)
        key = self.context.score_key(node)
        score = cache.get(key)
        if score is None:
            score = self._resumed.scores.get(node)
        if score is None and not self.context.can_be_scored(node):
            score = 0.0  # ranks below every chain that can be
        if score is not None:
            self._tell_scored(node, cache.lock(key, score))
        elif not cache.join(key, node):
            tokens = self.context.score_tokens(node)
            job = Job(self.number, work, tokens, kind, self._priority)
            self._add_all(cache.ask(key, node, job))

    def _drop_score(self, node: NodePath) -> None:
        """A score is no longer wanted; drop or cancel its job if no other search waits for it."""
        job = self._scores.leave(self.context.score_key(node), node)
        if job is None:
            return
        if not self._scores.withhold(job) and not self._runtime.scheduler.drop(job):
            self._runtime.cancel(job, "pruned")
        self._release(job)

    def _share_score(self, node: NodePath, score: float) -> None:
        """Lock a fresh score and give it to every node that waits for it."""
        for waiting in self._scores.answer(self.context.score_key(node), score):
            if waiting == node:
                self._tell(Scored(node, score))
            else:
                self._tell_scored(waiting, score)

    def _release(self, job: Job) -> None:
        """If this was the leader, the scores that begin with its prefix may go."""
        self._add_all(self._scores.follow(job))

    def _add(self, work: Expand | Prefetch, tokens: int, kind: Kind) -> None:
        self._runtime.scheduler.add(Job(self.number, work, tokens, kind, self._priority))

    def _add_all(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._runtime.scheduler.add(job)

    def _tell_generated(self, node: NodePath, thoughts: tuple[Thought, ...]) -> None:
        path = node
        for thought in thoughts:
            self.context.add(path, thought)
            path = (*path, 0)
        self._tell(Generated(node, thoughts))

    def _tell_scored(self, node: NodePath, score: float) -> None:
        """Tell a score that took no request of its own."""
        if node not in self._resumed.scores:
            now = self._runtime.clock()
            self._runtime.record(SharedScore(now, self.problem_id, node, score))
        self._tell(Scored(node, score))

    def _tell(self, result: Generated | Scored) -> None:
        self.search.tell(result)
        if self._on_result:
            self._on_result(result)
