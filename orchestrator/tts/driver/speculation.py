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

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import tee

from tts.prompting import Context
from tts.scheduling import Job, WorkKind
from tts.search import Expand, Generated, Guess, NodePath, Scored, Search, Work

from .problem_run import DriverParts, ProblemRun, Submission
from .records import JobAnswer, UsedGuess


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


@dataclass(slots=True)
class _SentAhead:
    """An expansion that was sent ahead."""

    job: Job
    chance: float
    """The chance that the search gave it."""
    answered: bool = False


class SpeculativeRun(ProblemRun):
    """A started problem whose expansions may be sent before its search asks for them."""

    def __init__(
        self,
        submission: Submission,
        context: Context,
        search: Search,
        parts: DriverParts,
        trust: Trust,
    ) -> None:
        """`trust` is shared by all problems with the same kind of search."""
        super().__init__(submission, context, search, parts)
        self._trust = trust
        self._ahead: dict[NodePath, _SentAhead] = {}
        """What was sent ahead and has not been asked for; the answers are in `_known`, too."""
        self._foreseen: Iterator[Guess] | None = None
        """What the search foresees, from the best on, as long as nothing changes."""

    def guesses(self) -> Iterator[Job]:
        """Expansions that may be sent ahead now, best first, as speculative jobs."""
        # a driver asks all its problems after every event, which has changed one of them
        foreseen = (
            self.search.hints.guess(self._known) if self._foreseen is None else self._foreseen
        )
        self._foreseen, guesses = tee(foreseen)
        for guess in guesses:
            parent = guess.work.node[:-1]
            if guess.work.node in self._ahead:
                continue
            self._learn(parent)
            if self.context.room(parent) > 0:
                yield Job(
                    self.number,
                    guess.work,
                    len(self.context.generator_ids(parent)),
                    WorkKind.SPECULATIVE,
                    self.submission.priority,
                    guess.level,
                    self._trust.factor * guess.chance,
                )

    def sent(self, job: Job) -> None:
        """A guess is in flight."""
        self._ahead[job.work.node] = _SentAhead(job, job.chance / self._trust.factor)

    def give_up(self, job: Job) -> None:
        """A guess in flight was cancelled for its slot."""
        del self._ahead[job.work.node]

    def take_in(self, job: Job, answer: JobAnswer) -> None:
        """Keep the answer to a guess until the search asks for it."""
        if job.kind is WorkKind.SPECULATIVE:
            assert isinstance(answer, tuple)
            self._ahead[job.work.node].answered = True
            self._known[job.work.node] = answer
            self._foreseen = None
        else:
            super().take_in(job, answer)

    def _advance(self, asks: list[Work], kind: WorkKind) -> None:
        super()._advance(asks, kind)
        if self._ahead and not self.search.done:
            self._drop_lost()

    def _drop_lost(self) -> None:
        """Forget guesses below nodes that can no longer be expanded."""
        expandable = self.search.hints.expandable()
        for node, ahead in list(self._ahead.items()):
            if any(node[:depth] in expandable for depth in range(1, len(node))):
                continue
            self._count(node, hit=False)
            if ahead.answered:
                del self._known[node]
            else:
                self._parts.cancel(ahead.job, "pruned")

    def _ask_expand(self, work: Expand, kind: WorkKind) -> None:
        node = work.node
        if node not in self._ahead:
            super()._ask_expand(work, kind)
            return
        ahead = self._count(node, hit=True)
        self._parts.record(UsedGuess(self._parts.clock(), self.problem_id, node))
        if ahead.answered:
            self._tell_generated(node, self._known.pop(node))
        else:
            self._parts.scheduler.guesses.promote(ahead.job)

    def _tell(self, result: Generated | Scored) -> None:
        self._foreseen = None
        super()._tell(result)

    def _learn(self, node: NodePath) -> None:
        """Build the ids of a node that was answered, but not asked for yet."""
        if node not in self.context:
            first = node
            while first and first not in self._known:  # a step behind what was thought before it
                first = first[:-1]
            self._learn(first[:-1])
            for depth, thought in enumerate(self._known[first], start=len(first)):
                self.context.add(first + (0,) * (depth - len(first)), thought)

    def _count(self, node: NodePath, *, hit: bool) -> _SentAhead:
        """A guess was asked for, or never will be."""
        ahead = self._ahead.pop(node)
        self._trust.add(ahead.chance, hit=hit)
        return ahead
