"""Speculation: work generated for one problem before its search asks for it. Pure.

    search ──ask──► expand ─┬─ sent ahead, answered ──► tell at once
                            ├─ sent ahead, in flight ─► promoted: its answer is told
                            └─ else ──────────────────► as without speculation (problem_run)

It is exact: the requests are those that the search itself would send, so an answer is the same
whether it is generated before or after the search asks for it. Answers are never filtered by
content or length. Engines answer in one piece and cannot hand over partial text, so a cancelled
request is discarded and, if needed later, generated from the start.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from tts.prompting import Context
from tts.scheduling import Job, Kind
from tts.search import (
    Expand,
    Generated,
    Guess,
    NodePath,
    Scored,
    Search,
    Thought,
    Work,
)

from .problem_run import ProblemRun, Runtime, Submission
from .records import Answer, Used


class Trust:
    """How often guesses came true, relative to the chances that searches gave them."""

    def __init__(self) -> None:
        self._expected = 1.0
        self._asked_for = 1.0

    @property
    def factor(self) -> float:
        """The number of decided guesses that were asked for, over the sum of their chances.

        One is added to both, so that the first few guesses weigh little. At most 1.
        """
        return min(1.0, self._asked_for / self._expected)

    def add(self, chance: float, *, hit: bool) -> None:
        """A guess with this chance was asked for, or never will be."""
        self._expected += chance
        self._asked_for += hit


class Foreseen:
    """What a search foresees, looked at again and again as long as it stays the same.

    A driver asks all its problems after every event, which has changed one of them.
    """

    def __init__(self, guesses: Iterator[Guess]) -> None:
        self._rest = guesses
        self._seen: list[Guess] = []

    def __iter__(self) -> Iterator[Guess]:
        yield from self._seen
        for guess in self._rest:
            self._seen.append(guess)
            yield guess


class Speculator:
    """The expansions sent ahead for one problem, and how many of them were used."""

    def __init__(self, known: dict[NodePath, tuple[Thought, ...]], trust: Trust) -> None:
        """`known`: thoughts that the search may ask for, to which answered guesses are added.

        `trust` is shared by all problems with the same kind of search.
        """
        self.known = known
        self._answered: dict[NodePath, None] = {}
        """The known nodes that were sent ahead, in the order of their answers."""
        self._in_flight: dict[NodePath, Job] = {}
        self._chances: dict[NodePath, float] = {}
        """By node that is in flight or answered: the chance that the search gave it."""
        self._trust = trust
        self._foreseen: Foreseen | None = None

    @property
    def trust(self) -> float:
        """The factor by which a chance that the search gives is multiplied."""
        return self._trust.factor

    def guesses(self, search: Search) -> Iterator[Guess]:
        """Expansions that could be sent ahead now, best first."""
        if self._foreseen is None:
            self._foreseen = Foreseen(search.foresee(self.known))
        for guess in self._foreseen:
            if guess.work.node not in self._in_flight:
                yield guess

    def changed(self) -> None:
        """The search was told something, or more is known: it may foresee other work now."""
        self._foreseen = None

    def sent(self, job: Job) -> None:
        """A guess is in flight; its chance is the search's, times `trust`."""
        self._in_flight[job.work.node] = job
        self._chances[job.work.node] = job.chance / self.trust

    def keep(self, job: Job, thoughts: tuple[Thought, ...]) -> None:
        """A guess was answered before its search asked for it."""
        del self._in_flight[job.work.node]
        self._answered[job.work.node] = None
        self.known[job.work.node] = thoughts
        self.changed()

    def give_up(self, job: Job) -> None:
        """A guess in flight was cancelled for its slot."""
        del self._in_flight[job.work.node], self._chances[job.work.node]

    def use_answer(self, node: NodePath) -> bool:
        """The search asks for a node; returns whether a guess for it was answered."""
        if node not in self._answered:
            return False
        self._forget_answer(node)
        self._count(node, hit=True)
        return True

    def use_request(self, node: NodePath) -> Job | None:
        """The search asks for a node; returns the guess in flight for it, now main work."""
        job = self._in_flight.pop(node, None)
        if job:
            self._count(node, hit=True)
        return job

    def drop_lost(self, expandable: Container[NodePath]) -> list[Job]:
        """Forget guesses below nodes that can no longer be expanded; returns the jobs to cancel."""
        jobs: list[Job] = []
        for node in (*self._in_flight, *self._answered):
            if not any(node[:depth] in expandable for depth in range(1, len(node))):
                self._count(node, hit=False)
                if node in self._answered:
                    self._forget_answer(node)
                else:
                    jobs.append(self._in_flight.pop(node))
        return jobs

    @property
    def idle(self) -> bool:
        """Whether the search has asked for everything that was sent ahead."""
        return not (self._in_flight or self._answered)

    def _forget_answer(self, node: NodePath) -> None:
        del self._answered[node], self.known[node]

    def _count(self, node: NodePath, *, hit: bool) -> None:
        """A guess was asked for, or never will be."""
        self._trust.add(self._chances.pop(node), hit=hit)


class SpeculativeRun(ProblemRun):
    """A started problem whose expansions may be sent before its search asks for them."""

    def __init__(
        self,
        submission: Submission,
        context: Context,
        search: Search,
        runtime: Runtime,
        trust: Trust,
    ) -> None:
        super().__init__(submission, context, search, runtime)
        self.speculator = Speculator(self._known, trust)

    def guesses(self) -> Iterator[Job]:
        """Expansions that may be sent ahead now, best first, as speculative jobs."""
        trust = self.speculator.trust
        for guess in self.speculator.guesses(self.search):
            parent = guess.work.node[:-1]
            self._learn(parent)
            if self.context.room(parent) > 0:
                yield Job(
                    self.number,
                    guess.work,
                    len(self.context.generator_ids(parent)),
                    Kind.SPECULATIVE,
                    self._priority,
                    guess.level,
                    trust * guess.chance,
                )

    def take_in(self, job: Job, answer: Answer) -> None:
        """Keep the answer to a guess until the search asks for it."""
        if job.kind is Kind.SPECULATIVE:
            assert isinstance(answer, tuple)
            self.speculator.keep(job, answer)
        else:
            super().take_in(job, answer)

    def _advance(self, asks: list[Work], kind: Kind) -> None:
        super()._advance(asks, kind)
        if not self.speculator.idle and not self.search.done:
            for job in self.speculator.drop_lost(self.search.expandable()):
                self._runtime.cancel(job, "pruned")

    def _ask_expand(self, work: Expand, kind: Kind) -> None:
        node, speculator = work.node, self.speculator
        thoughts = self._known.get(node)
        if thoughts and speculator.use_answer(node):
            self._record_used(node)
            self._tell_generated(node, thoughts)
        elif sent_ahead := speculator.use_request(node):
            self._runtime.scheduler.promote(sent_ahead)
            self._record_used(node)
        else:
            super()._ask_expand(work, kind)

    def _tell(self, result: Generated | Scored) -> None:
        self.speculator.changed()
        super()._tell(result)

    def _learn(self, node: NodePath) -> None:
        """Build the ids of a node that was answered, but not asked for yet."""
        if node not in self.context:
            self._learn(node[:-1])
            self.context.add(node, self._known[node][0])

    def _record_used(self, node: NodePath) -> None:
        self._runtime.record(Used(self._runtime.clock(), self.problem_id, node))
