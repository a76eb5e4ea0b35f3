"""Runs searches on two engines: the loop between the search core, the scheduler and the endpoints.

For every node it builds the token ids, asks the scheduler what to send, sends it, and tells the
search what came back. Scores are cached by the ids they were computed from, so identical steps
share one verifier call; a score is locked at the first write. Everything that happens is reported
once, through `record`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tts.build.errors import TtsError

from .context import Context, Models
from .endpoints import GenerateCall, Generator, Verifier
from .problem import Problem
from .scheduling import Job, Kind, Policy, Scheduler
from .search import Expand, Generated, NodePath, Score, Scored, Search, Stop, Thought, quantise

Record = Callable[[dict[str, Any]], None]
"""Takes one event of the run log; see docs/run-log.md for the fields."""


@dataclass
class Replayed:
    """What an earlier, interrupted run already computed for one problem."""

    thoughts: dict[NodePath, tuple[Thought, ...]] = field(default_factory=dict)
    scores: dict[NodePath, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Solved:
    """A finished search."""

    problem: Problem
    search: Search


@dataclass(slots=True)
class _Running:
    place: int
    context: Context
    search: Search
    replayed: Replayed
    scores: dict[bytes, float] = field(default_factory=dict)
    """Locked scores by the verifier ids they were computed from."""
    awaited: dict[bytes, list[NodePath]] = field(default_factory=dict)
    """Ids whose score is pending, with the further nodes that wait for it."""
    in_flight: dict[Job, asyncio.Task[None]] = field(default_factory=dict)


class Driver:
    """One run over a list of problems. `run()` may be called once."""

    def __init__(
        self,
        models: Models,
        new_search: Callable[[Problem], Search],
        generator: Generator,
        verifier: Verifier,
        policy: Policy,
        *,
        record: Record,
        on_solved: Callable[[Solved], Coroutine[Any, Any, None]],
        on_node: Callable[[Problem, Search], None] | None = None,
        replayed: dict[str, Replayed] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_solved` is awaited beside the run; `on_node` is called after each result.

        `clock` gives the times of events; on virtual time it is the event loop's.
        """
        self._models = models
        self._new_search = new_search
        self._generator = generator
        self._verifier = verifier
        self._scheduler = Scheduler(policy)
        self._record = record
        self._on_solved = on_solved
        self._on_node = on_node
        self._replayed = replayed or {}
        self._clock = clock
        self._running: dict[int, _Running] = {}
        self._queued: deque[Context] = deque()
        self._place = 0
        self._group: asyncio.TaskGroup

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests in flight now: generator, verifier."""
        return self._scheduler.in_flight

    async def run(self, problems: Iterable[Context]) -> None:
        """Solve all problems, oldest first.

        If an engine is lost the error is raised after everything in flight was cancelled.
        """
        self._queued.extend(problems)
        try:
            async with asyncio.TaskGroup() as self._group:
                self._pump()
        except BaseExceptionGroup as failures:
            raise _most_telling(failures) from failures
        if self._running or self._queued:  # else a run would end early and look complete
            left = len(self._running) + len(self._queued)
            raise RuntimeError(f"nothing is in flight, but {left} problems are not solved")

    def _pump(self) -> None:
        """Send what the scheduler allows; start problems while it wants them."""
        while True:
            while self._queued and self._scheduler.wants_problem():
                self._start(self._queued.popleft())
            jobs = self._scheduler.take()
            if not jobs:
                return
            for job in jobs:
                running = self._running[job.problem]
                task = self._group.create_task(self._send(running, job))
                running.in_flight[job] = task
                task.add_done_callback(partial(self._left, running, job))

    def _start(self, context: Context) -> None:
        search = self._new_search(context.problem)
        replayed = self._replayed.get(context.problem.id, Replayed())
        running = _Running(self._place, context, search, replayed)
        self._running[self._place] = running
        self._place += 1
        self._scheduler.problem_started()
        self._record({"event": "problem_started", "problem": context.problem.id})
        self._advance(running, Kind.EAGER)

    def _advance(self, running: _Running, kind: Kind = Kind.MAIN) -> None:
        """Turn what the search asks for into jobs, answering at once what is known already."""
        search = running.search
        while asks := search.ask():
            for work in asks:
                if isinstance(work, Expand):
                    self._ask_expand(running, work, kind)
                else:
                    self._ask_score(running, work, kind)
        if self._on_node:
            self._on_node(running.context.problem, search)
        if search.done and running.place in self._running:
            del self._running[running.place]
            self._drop_work(running)
            self._group.create_task(self._on_solved(Solved(running.context.problem, search)))

    def _drop_work(self, running: _Running) -> None:
        """Cancel what a finished search no longer needs (it may stop early)."""
        self._scheduler.problem_done(running.place)
        for job, task in list(running.in_flight.items()):
            self._ended(running, job)
            task.cancel()

    def _ask_expand(self, running: _Running, work: Expand, kind: Kind) -> None:
        if thoughts := running.replayed.thoughts.get(work.node):
            self._tell_generated(running, work.node, thoughts)
            return
        prompt = running.context.generator_ids(work.node[:-1])
        if len(prompt) >= self._models.deployment.generator.max_seq_len:
            full = (Thought((), "", Stop.LENGTH),)
            self._tell_generated(running, work.node, full)
            return
        self._add(running, work, len(prompt), kind)

    def _ask_score(self, running: _Running, work: Score, kind: Kind) -> None:
        ids = running.context.verifier_ids(work.node)
        key = ids.tobytes()
        known = running.scores.get(key)
        if known is None:
            known = running.replayed.scores.get(work.node)
        if known is None and len(ids) >= self._models.deployment.verifier.max_seq_len:
            known = 0.0  # cannot be scored: ranks below every path that can
        if known is not None:
            score = running.scores.setdefault(key, known)
            self._tell_scored(running, work.node, score, cached=True)
        elif key in running.awaited:
            running.awaited[key].append(work.node)
        else:
            running.awaited[key] = []
            self._add(running, work, len(ids), kind)

    def _add(self, running: _Running, work: Expand | Score, tokens: int, kind: Kind) -> None:
        if work.speculative:
            kind = Kind.SPECULATIVE
        self._scheduler.add(Job(running.place, work, tokens, kind))

    async def _send(self, running: _Running, job: Job) -> None:
        event: dict[str, Any] = {
            "problem": running.context.problem.id,
            "node": job.work.node,
            "kind": job.kind.name.lower(),
            "prompt_tokens": job.tokens,
            "in_flight": self._scheduler.in_flight,
            "sent": self._clock(),
        }
        try:
            if isinstance(job.work, Expand):
                thoughts, outcome = await self._generate(running, job.work)
            else:
                score, outcome = await self._score(running, job.work)
        except BaseException as failure:
            wanted = self._ended(running, job)
            if wanted or not isinstance(failure, (asyncio.CancelledError, TtsError)):
                raise
            outcome = {"event": "cancelled", "work": type(job.work).__name__.lower()}
            self._record(outcome | event | {"done": self._clock()})
            return
        self._ended(running, job)
        self._record(outcome | event | {"done": self._clock()})
        if isinstance(job.work, Expand):
            self._tell_generated(running, job.work.node, thoughts)
        else:
            self._share_score(running, job.work.node, score)
        self._advance(running)
        self._pump()

    def _left(self, running: _Running, job: Job, _: asyncio.Task[None]) -> None:
        """A job's task is over, perhaps cancelled before it began."""
        self._ended(running, job)

    def _ended(self, running: _Running, job: Job) -> bool:
        """Give back a job's budget; False if that was done when its search ended without it."""
        if running.in_flight.pop(job, None) is None:
            return False
        self._scheduler.ended(job)
        return True

    async def _generate(
        self, running: _Running, work: Expand
    ) -> tuple[tuple[Thought, ...], dict[str, Any]]:
        prompt = running.context.generator_ids(work.node[:-1])
        room = self._models.deployment.generator.max_seq_len - len(prompt)
        sampling = work.sampling
        limit = min(sampling.max_tokens, room)
        call = GenerateCall(
            prompt, limit, work.seed, sampling.temperature, sampling.top_p, not work.whole
        )
        ids = await self._generator.generate(call)
        thoughts = self._models.thoughts(ids, truncated=len(ids) >= limit, whole=work.whole)
        logged = [{"ids": t.token_ids, "text": t.text, "stop": t.stop} for t in thoughts]
        return thoughts, {"event": "generated", "tokens": len(ids), "thoughts": logged}

    async def _score(self, running: _Running, work: Score) -> tuple[float, dict[str, Any]]:
        score = quantise(await self._verifier.score(running.context.verifier_ids(work.node)))
        return score, {"event": "scored", "score": score, "cached": False}

    def _share_score(self, running: _Running, node: NodePath, score: float) -> None:
        """Lock a fresh score under its ids and give it to everyone who waits for it."""
        key = running.context.verifier_ids(node).tobytes()
        running.scores[key] = score
        running.search.tell(Scored(node, score))
        for waiting in running.awaited.pop(key):
            self._tell_scored(running, waiting, score, cached=True)

    def _tell_generated(
        self, running: _Running, node: NodePath, thoughts: tuple[Thought, ...]
    ) -> None:
        path = node
        for thought in thoughts:
            running.context.add(path, thought)
            path = (*path, 0)
        running.search.tell(Generated(node, thoughts))

    def _tell_scored(
        self, running: _Running, node: NodePath, score: float, *, cached: bool
    ) -> None:
        if node not in running.replayed.scores:
            self._record(
                {
                    "event": "scored",
                    "problem": running.context.problem.id,
                    "node": node,
                    "score": score,
                    "cached": cached,
                }
            )
        running.search.tell(Scored(node, score))


def _most_telling(failures: BaseExceptionGroup) -> BaseException:
    """The failure to show of those that ended a run together: a TtsError if there is one."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [failures]
    while pending:
        failure = pending.pop(0)
        if isinstance(failure, BaseExceptionGroup):
            pending.extend(failure.exceptions)
        else:
            leaves.append(failure)
    return next((leaf for leaf in leaves if isinstance(leaf, TtsError)), leaves[0])
