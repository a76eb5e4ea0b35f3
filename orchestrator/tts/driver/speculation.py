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

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import tee

from tts.prompting import Context
from tts.scheduling import Job, WorkKind
from tts.search import Guess, NodePath, Search, Thought

from .records import Submission


def best_guesses(speculations: Iterable[Speculation]) -> Iterator[Job]:
    """The guesses of all problems that could be sent now: shallow first, then by chance."""
    guesses = (each.guesses() for each in speculations)
    return heapq.merge(*guesses, key=lambda job: (job.level, -job.chance))


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
        """Count a guess with this chance: `hit`, it was asked for; else it never will be."""
        self._expected += chance
        self._asked_for += hit


@dataclass(slots=True)
class SentGuess:
    """An expansion that was sent before its search asked for it."""

    job: Job
    chance: float
    """The chance that the search gave it."""
    answered: bool = False


class Speculation:
    """Expansions of one problem that may be sent, or were, before its search asks for them."""

    def __init__(
        self,
        submission: Submission,
        search: Search,
        context: Context,
        answers: dict[NodePath, tuple[Thought, ...]],
        trust: Trust,
    ) -> None:
        """`answers` has thoughts that need no request; those to guesses are added to it."""
        self._problem, self._priority = submission.number, submission.priority
        self._search = search
        self._context = context
        self._answers = answers
        self._trust = trust
        self.ahead: dict[NodePath, SentGuess] = {}
        """Guesses that were sent and that the search has not asked for."""
        self._guesses: Iterator[Guess] | None = None
        """The search's guesses, from the best on, as long as nothing changes."""

    def guesses(self) -> Iterator[Job]:
        """Expansions that may be sent ahead now, best first, as speculative jobs."""
        # a driver asks all its problems after every event, which has changed one of them
        guesses = self._guesses or self._search.hints.guess(self._answers)
        self._guesses, guesses = tee(guesses)
        for guess in guesses:
            parent = guess.work.node[:-1]
            if guess.work.node in self.ahead:
                continue
            self._build_ids(parent)
            if self._context.room(parent) > 0:
                yield Job(
                    self._problem,
                    guess.work,
                    len(self._context.generator_ids(parent)),
                    WorkKind.SPECULATIVE,
                    self._priority,
                    guess.level,
                    self._trust.factor * guess.chance,
                )

    def add(self, job: Job) -> None:
        """Note that a guess is in flight."""
        self.ahead[job.work.node] = SentGuess(job, job.chance / self._trust.factor)

    def give_up(self, job: Job) -> None:
        """Forget a guess in flight that was cancelled for its slot."""
        del self.ahead[job.work.node]

    def take_in(self, job: Job, answer: tuple[Thought, ...]) -> None:
        """Keep the answer to a guess until the search asks for it."""
        self.ahead[job.work.node].answered = True
        self._answers[job.work.node] = answer
        self._guesses = None

    def claim(self, node: NodePath) -> SentGuess | None:
        """The guess that was sent for a node which the search asks for; None if there is none."""
        return self._decide(node, hit=True) if node in self.ahead else None

    def drop_unreachable(self) -> list[Job]:
        """Forget guesses below nodes that can no longer be expanded; their jobs in flight."""
        expandable = self._search.hints.expandable()
        jobs: list[Job] = []
        for node in list(self.ahead):
            if any(node[:depth] in expandable for depth in range(len(node) - 1, 0, -1)):
                continue  # mostly below its parent
            guess = self._decide(node, hit=False)
            if guess.answered:
                del self._answers[node]
            else:
                jobs.append(guess.job)
        return jobs

    def refresh(self) -> None:
        """Note that a result has changed what the search guesses."""
        self._guesses = None

    def _build_ids(self, node: NodePath) -> None:
        """Build the ids of a node that was answered, but not asked for yet."""
        if node not in self._context:
            first = node
            while first and first not in self._answers:  # a step behind what was thought before it
                first = first[:-1]
            self._build_ids(first[:-1])
            for depth, thought in enumerate(self._answers[first], start=len(first)):
                self._context.add(first + (0,) * (depth - len(first)), thought)

    def _decide(self, node: NodePath, *, hit: bool) -> SentGuess:
        """Count a guess as asked for, or as one that never will be."""
        guess = self.ahead.pop(node)
        self._trust.add(guess.chance, hit=hit)
        return guess
