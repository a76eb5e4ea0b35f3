"""What is generated for one problem before its search has asked for it. Pure.

It is exact: the requests are those that the search itself would send, so an answer is the same
whether it was asked for before or after the search wanted it; nothing is kept or thrown away for
what it says or how long it is. An engine that answers in one piece cannot hand over partial text,
so what is cancelled is thrown away whole and, if it is wanted later, generated from the start.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from tts.scheduling import Job
from tts.search import Guess, NodePath, Thought

SMOOTHING = 0.1
"""Weight of the newest outcome in the moving hit rate."""
FIRST_RATE = 0.5
"""What the hit rate is taken for before there are outcomes."""
LEAST_RATE = 0.25
"""Below this, speculation takes more of the engine than it gives back (SPEX's floor)."""


@dataclass
class Speculation:
    """The expansions sent ahead for one problem, and how many of them were of use."""

    answered: dict[NodePath, tuple[Thought, ...]] = field(default_factory=dict)
    in_flight: dict[NodePath, tuple[Guess, Job]] = field(default_factory=dict)
    hit_rate: float = FIRST_RATE
    """Moving share of the expansions that their search asked for."""

    @property
    def pays(self) -> bool:
        """Whether enough of it was of use lately."""
        return self.hit_rate >= LEAST_RATE

    def count(self, *, hit: bool) -> None:
        """An expansion was asked for, or never will be."""
        self.hit_rate += SMOOTHING * (hit - self.hit_rate)

    def lost(self, expandable: Container[NodePath]) -> Iterator[NodePath]:
        """What is below no node that may yet be expanded."""
        for node in (*self.in_flight, *self.answered):
            if not any(node[:depth] in expandable for depth in range(1, len(node))):
                yield node


def worst(guess: Guess, problem: int) -> tuple[int, float, int]:
    """Sort key of speculative requests in flight: the largest is given up first."""
    return guess.level, -guess.chance, problem
