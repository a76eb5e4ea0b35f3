"""Runs searches on two engines: the loop between the search core, the scheduler and the endpoints.

For every node it builds the token ids, asks the scheduler what to send, sends it, and tells the
search what came back. Scores are cached by the ids they were computed from, so identical steps
share one verifier call; a score is locked at the first write. Slots that nothing certain wants are
filled with expansions that the searches foresee. Everything that happens is reported once, through
`record`.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import ChainMap, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tts.build.errors import TtsError
from tts.endpoints.base import GenerateCall, Generator, ScoreCall, Verifier
from tts.problem import Problem
from tts.prompting.context import Context, Models
from tts.scheduling import Job, Kind, Policy, Prefetch, Scheduler
from tts.search import (
    Expand,
    Generated,
    Guess,
    NodePath,
    Score,
    Scored,
    Search,
    Stop,
    Thought,
    Work,
    quantise,
)

from .engine_load import IdleWatch, Load
from .speculation import Speculation, worst

Record = Callable[[dict[str, Any]], None]
"""Takes one event of the run log; see docs/run-log.md for the fields."""

FULL = (Thought((), "", Stop.LENGTH),)
"""What comes of a prompt that fills the engine."""


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
class _Awaited:
    """A score that is pending or in flight, and the nodes that wait for it."""

    job: Job
    nodes: list[NodePath]


@dataclass(slots=True)
class _Running:
    place: int
    context: Context
    search: Search
    replayed: Replayed
    scores: dict[bytes, float] = field(default_factory=dict)
    """Locked scores by the verifier ids they were computed from."""
    awaited: dict[bytes, _Awaited] = field(default_factory=dict)
    """By the same ids."""
    in_flight: dict[Job, asyncio.Task[None]] = field(default_factory=dict)
    speculation: Speculation = field(default_factory=Speculation)
    first_asks: list[Work] = field(default_factory=list)
    """What waits for the problem's prompt to be prefetched."""
    leader: Job | None = None
    """The first score of the problem: while it is awaited, others wait for the prefix it brings."""
    followers: list[Job] = field(default_factory=list)

    @property
    def known(self) -> ChainMap[NodePath, tuple[Thought, ...]]:
        """Thoughts that the search may ask for and that need no request."""
        return ChainMap(self.speculation.answered, self.replayed.thoughts)


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
        self._policy = policy
        self._scheduler = Scheduler(policy)
        self._record = record
        self._on_solved = on_solved
        self._on_node = on_node
        self._replayed = replayed or {}
        self._clock = clock
        self._idle = IdleWatch(record)
        self._load = Load()
        self._running: dict[int, _Running] = {}
        self._queued: deque[Context] = deque()
        self._place = 0
        self._why: dict[Job, str] = {}
        """Why jobs in flight were cancelled."""
        self._alarm: float | None = None
        self._group: asyncio.TaskGroup

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests in flight now: generator, verifier."""
        return self._scheduler.in_flight

    @property
    def generator_knee(self) -> int | None:
        """Requests in flight from which on the generator gained little; None: not seen."""
        return self._scheduler.knee

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
        self._idle.end(self._clock())
        if self._running or self._queued:  # else a run would end early and look complete
            left = len(self._running) + len(self._queued)
            raise RuntimeError(f"nothing is in flight, but {left} problems are not solved")

    def _pump(self) -> None:
        """Send what the scheduler allows; start problems while it wants them."""
        while True:
            while self._queued and self._scheduler.wants_problem():
                self._start(self._queued.popleft())
            jobs = self._scheduler.take(self._clock())
            if not jobs:
                break
            for job in jobs:
                self._send(self._running[job.problem], job)
        self._give_back()
        self._speculate()
        self._set_alarm()
        now, in_flight = self._clock(), self._scheduler.in_flight
        self._load.update(now, in_flight[0])
        self._idle.update(now, in_flight, self._scheduler.pending)

    def _set_alarm(self) -> None:
        """Pump again when held work is due, even if nothing happens before."""
        due = self._scheduler.due()
        if due is not None and (self._alarm is None or due < self._alarm):
            self._alarm = due
            self._group.create_task(self._pump_at(due))

    async def _pump_at(self, due: float) -> None:
        await asyncio.sleep(due - self._clock())
        if self._alarm == due:
            self._alarm = None
        self._pump()

    def _start(self, context: Context) -> None:
        search = self._new_search(context.problem)
        replayed = self._replayed.get(context.problem.id, Replayed())
        running = _Running(self._place, context, search, replayed)
        self._running[self._place] = running
        self._place += 1
        self._scheduler.problem_started()
        self._record({"event": "problem_started", "problem": context.problem.id})
        if self._policy.prefetch and not replayed.thoughts:
            running.first_asks = search.ask()
            if len(running.first_asks) > 1:
                prompt = len(context.generator_ids(()))
                self._add(Job(running.place, Prefetch(), prompt, Kind.EAGER))
                return
        self._advance(running, Kind.EAGER)

    def _advance(self, running: _Running, kind: Kind = Kind.MAIN) -> None:
        """Turn what the search asks for into jobs, answering at once what is known already."""
        search = running.search
        asks, running.first_asks = running.first_asks or search.ask(), []
        while asks:
            for work in asks:
                if isinstance(work, Expand):
                    self._ask_expand(running, work, kind)
                else:
                    self._ask_score(running, work, kind)
            asks = search.ask()
        for node in search.unwanted():
            self._drop_score(running, node)
        if self._on_node:
            self._on_node(running.context.problem, search)
        if search.done:
            self._finish(running)
        else:
            self._drop_lost(running)

    def _finish(self, running: _Running) -> None:
        """A search is done; cancel what it does not need any more (it may stop early)."""
        if running.place not in self._running:
            return
        del self._running[running.place]
        self._scheduler.problem_done(running.place)
        for job in list(running.in_flight):
            self._cancel(running, job, "ended")
        solved = Solved(running.context.problem, running.search)
        self._group.create_task(self._on_solved(solved))

    def _ask_expand(self, running: _Running, work: Expand, kind: Kind) -> None:
        node, speculation = work.node, running.speculation
        if thoughts := running.known.get(node):
            if speculation.answered.pop(node, None):
                self._used(running, node)
            self._tell_generated(running, node, thoughts)
        elif flying := speculation.in_flight.pop(node, None):
            self._scheduler.promote(flying[1])
            self._used(running, node)
        elif self._is_full(prompt := running.context.generator_ids(node[:-1])):
            self._tell_generated(running, node, FULL)
        else:
            self._add(Job(running.place, work, len(prompt), kind))

    def _is_full(self, prompt: Any) -> bool:
        return len(prompt) >= self._models.deployment.generator.max_seq_len

    def _ask_score(self, running: _Running, work: Score, kind: Kind) -> None:
        ids = running.context.verifier_ids(work.node)
        key = ids.tobytes()
        self._scheduler.scoring(running.place, work)
        known = running.scores.get(key)
        if known is None:
            known = running.replayed.scores.get(work.node)
        if known is None and len(ids) >= self._models.deployment.verifier.max_seq_len:
            known = 0.0  # cannot be scored: ranks below every path that can
        if known is not None:
            score = running.scores.setdefault(key, known)
            self._tell_scored(running, work.node, score)
        elif key in running.awaited:
            running.awaited[key].nodes.append(work.node)
        else:
            job = Job(running.place, work, len(ids), kind)
            running.awaited[key] = _Awaited(job, [work.node])
            self._add_score(running, job)

    def _add_score(self, running: _Running, job: Job) -> None:
        if running.leader and running.leader is not job:
            running.followers.append(job)
            return
        if self._policy.prefetch and not running.scores:
            running.leader = job
        self._add(job)

    def _follow(self, running: _Running) -> None:
        """The leader has brought the prefix, or was dropped: the others may go."""
        running.leader, followers = None, running.followers
        running.followers = []
        for job in followers:
            self._add_score(running, job)

    def _drop_score(self, running: _Running, node: NodePath) -> None:
        """A score is not wanted any more; cancel its request if nobody else waits for it."""
        key = running.context.verifier_ids(node).tobytes()
        if (awaited := running.awaited.get(key)) is None:
            return
        if node in awaited.nodes:
            awaited.nodes.remove(node)
        if awaited.nodes:
            return
        job = awaited.job
        del running.awaited[key]
        if job in running.followers:
            running.followers.remove(job)
        elif not self._scheduler.drop(job):
            self._cancel(running, job, "pruned")
        if running.leader is job:
            self._follow(running)

    def _add(self, job: Job) -> None:
        self._scheduler.add(job, self._clock())

    def _send(self, running: _Running, job: Job) -> None:
        task = self._group.create_task(self._request(running, job, job.kind))
        running.in_flight[job] = task
        task.add_done_callback(partial(self._left, running, job))

    def _speculate(self) -> None:
        """Fill slots that nothing certain wants: of all problems shallow first, then by chance."""
        if (slots := self._scheduler.spare()) <= 0:
            return
        always = self._policy.speculation == "always"
        guesses = [
            self._guesses(running)
            for running in self._running.values()
            if always or running.speculation.pays
        ]
        ranked = heapq.merge(*guesses, key=lambda each: (each[1].level, -each[1].chance))
        for running, guess in ranked:
            if not self._scheduler.pays(guess.chance):
                return
            job = Job(
                running.place, guess.work, self._prompt_length(running, guess), Kind.SPECULATIVE
            )
            self._scheduler.speculate(job)
            running.speculation.in_flight[guess.work.node] = (guess, job)
            self._send(running, job)
            slots -= 1
            if not slots:
                return

    def _guesses(self, running: _Running) -> Iterator[tuple[_Running, Guess]]:
        """What may be sent ahead for one problem, best first."""
        speculation = running.speculation
        for guess in running.search.foresee(running.known):
            if guess.work.node in speculation.in_flight:
                continue
            self._learn(running, guess.work.node[:-1])
            if self._is_full(running.context.generator_ids(guess.work.node[:-1])):
                continue
            yield running, guess

    def _prompt_length(self, running: _Running, guess: Guess) -> int:
        return len(running.context.generator_ids(guess.work.node[:-1]))

    def _learn(self, running: _Running, node: NodePath) -> None:
        """Build the ids of a node that was answered, but not asked for yet."""
        if node not in running.context:
            self._learn(running, node[:-1])
            running.context.add(node, running.known[node][0])

    def _used(self, running: _Running, node: NodePath) -> None:
        running.speculation.count(hit=True)
        self._record({"event": "used", "problem": running.context.problem.id, "node": node})

    def _drop_lost(self, running: _Running) -> None:
        """Forget and cancel speculation that the search has ruled out."""
        speculation = running.speculation
        if not speculation.in_flight and not speculation.answered:
            return
        for node in list(speculation.lost(running.search.expandable())):
            speculation.count(hit=False)
            if speculation.answered.pop(node, None) is None:
                _, job = speculation.in_flight.pop(node)
                self._cancel(running, job, "pruned")

    def _give_back(self) -> None:
        """Cancel the least promising speculation while main and eager work wants its slots."""
        for _ in range(self._scheduler.overdrawn()):
            _, place, node = max(
                (worst(guess, running.place), running.place, node)
                for running in self._running.values()
                for node, (guess, _) in running.speculation.in_flight.items()
            )
            running = self._running[place]
            _, job = running.speculation.in_flight.pop(node)
            self._cancel(running, job, "slot")

    async def _request(self, running: _Running, job: Job, kind: Kind) -> None:
        # `kind` is what it is sent as; it may be promoted before this begins
        event: dict[str, Any] = {
            "problem": running.context.problem.id,
            "node": job.work.node,
            "kind": kind.name.lower(),
            "prompt_tokens": job.tokens,
            "in_flight": self._scheduler.in_flight,
            "sent": self._clock(),
        }
        if trigger := self._scheduler.triggers.get(job):
            event["trigger"] = trigger
        answer: Any
        try:
            match job.work:
                case Expand():
                    answer, outcome = await self._generate(running, job.work)
                case Score():
                    answer, outcome = await self._score(running, job.work)
                case Prefetch():
                    answer, outcome = await self._prefetch(running)
        except (asyncio.CancelledError, TtsError):
            if self._ended(running, job):
                raise
            wanted = False
        else:
            wanted = self._ended(running, job)
        if not wanted:
            outcome = {"event": "cancelled", "work": type(job.work).__name__.lower()}
            event["why"] = self._why[job]
        self._record(outcome | event | {"done": self._clock()})
        if wanted:
            self._take_in(running, job, answer)
            self._pump()

    def _take_in(self, running: _Running, job: Job, answer: Any) -> None:
        """Tell a search what came back, or keep it until the search asks."""
        work = job.work
        if job.kind is Kind.SPECULATIVE:
            running.speculation.in_flight.pop(work.node)
            running.speculation.answered[work.node] = answer
            return
        if isinstance(work, Expand):
            self._tell_generated(running, work.node, answer)
        elif isinstance(work, Score):
            self._share_score(running, work.node, answer)
            if running.leader is job:
                self._follow(running)
        self._advance(running, Kind.EAGER if isinstance(work, Prefetch) else Kind.MAIN)

    def _left(self, running: _Running, job: Job, _: asyncio.Task[None]) -> None:
        """A job's task is over, perhaps cancelled before it began."""
        self._ended(running, job)
        self._why.pop(job, None)

    def _cancel(self, running: _Running, job: Job, why: str) -> None:
        task = running.in_flight[job]
        self._ended(running, job)
        self._why[job] = why
        task.cancel()

    def _ended(self, running: _Running, job: Job) -> bool:
        """Give back a job's budget; False if that was done when it was cancelled."""
        if running.in_flight.pop(job, None) is None:
            return False
        self._scheduler.ended(job)
        return True

    def _area(self) -> float:
        """The generator's load up to now, in request-seconds."""
        return self._load.update(self._clock(), self._scheduler.in_flight[0])

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
        began, area = self._clock(), self._area()
        ids = await self._generator.generate(call)
        if took := self._clock() - began:
            self._scheduler.learn((self._area() - area) / took, len(ids), took)
        thoughts = self._models.thoughts(ids, truncated=len(ids) >= limit, whole=work.whole)
        logged = [{"ids": t.token_ids, "text": t.text, "stop": t.stop} for t in thoughts]
        return thoughts, {"event": "generated", "tokens": len(ids), "thoughts": logged}

    async def _prefetch(self, running: _Running) -> tuple[None, dict[str, Any]]:
        prompt = running.context.generator_ids(())
        await self._generator.generate(GenerateCall(prompt, 1, 0, 0.0, 1.0, True))
        return None, {"event": "prefetched", "engine": "generator"}

    async def _score(self, running: _Running, work: Score) -> tuple[float, dict[str, Any]]:
        result = await self._verifier.score(ScoreCall(running.context.verifier_ids(work.node)))
        score = quantise(result.score)
        return score, {"event": "scored", "score": score, "cached": False}

    def _share_score(self, running: _Running, node: NodePath, score: float) -> None:
        """Lock a fresh score under its ids and give it to everyone who waits for it."""
        key = running.context.verifier_ids(node).tobytes()
        running.scores[key] = score
        for waiting in running.awaited.pop(key).nodes:
            if waiting == node:
                running.search.tell(Scored(node, score))
            else:
                self._tell_scored(running, waiting, score)

    def _tell_generated(
        self, running: _Running, node: NodePath, thoughts: tuple[Thought, ...]
    ) -> None:
        path = node
        for thought in thoughts:
            running.context.add(path, thought)
            path = (*path, 0)
        running.search.tell(Generated(node, thoughts))

    def _tell_scored(self, running: _Running, node: NodePath, score: float) -> None:
        """Tell a score that took no request of its own."""
        if node not in running.replayed.scores:
            self._record(
                {
                    "event": "scored",
                    "problem": running.context.problem.id,
                    "node": node,
                    "score": score,
                    "cached": True,
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
