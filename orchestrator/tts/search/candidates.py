"""Candidates and pools, which the tree strategies grow, score and decide on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from .thought import MAX_SCORE, Thought
from .tree import Node, Rank


class CandidateState(Enum):
    """A candidate's state; `step_search` draws the transitions."""

    GROWING = auto()
    """It waits for its step."""
    SCORING = auto()
    """It waits for scores only."""
    READY = auto()
    """It waits for the rest of its pool."""


@dataclass(slots=True, eq=False)
class Pool:
    """Candidates that are decided together; `key` identifies the pool within its strategy."""

    key: int
    iteration: int
    """Number of the iteration, starting at 1."""
    last: bool
    """Whether this is the last iteration."""
    whole: bool
    """Whether its candidates are generated to the end of the sequence."""
    candidates: list[Candidate] = field(default_factory=list)
    """The candidates in the order in which they were opened, less those that were pruned early."""
    unready: int = 0
    ranked: list[Candidate] = field(default_factory=list)
    """The ready candidates, in rank order."""
    ranked_active: list[Candidate] = field(default_factory=list)
    """The ready candidates that are active, in rank order."""
    ended: int = 0
    """Number of candidates that are known to be inactive."""

    @property
    def ends(self) -> list[Node]:
        """The last step of every candidate, in the order in which they were opened."""
        return [candidate.end for candidate in self.candidates]


@dataclass(slots=True, eq=False)
class Candidate:
    """A new step at the end of a chain, or the rest of it; kept or pruned as one."""

    pool: Pool
    start: int
    """Depth of its first step."""
    end: Node
    """Its last step."""
    upper_bound: float
    """The most that its path can score."""
    prior: float
    """Expected score of its path while it is unscored: the score of the path above."""
    state: CandidateState = CandidateState.GROWING
    active: bool = True
    """Whether its chain can be expanded; known once it is generated."""
    unscored: int = 0
    """Number of scores that have been asked for and not been told."""
    rank: Rank | None = None
    """Its rank, once it is ready."""

    @property
    def best_rank(self) -> Rank:
        """Its rank, or the best that it can reach before it is ready."""
        return self.rank or (-self.upper_bound, -MAX_SCORE, self.end.path)

    @property
    def expected_score(self) -> float:
        """The score of its path, or the prior before it is ready."""
        return -self.rank[0] if self.rank else self.prior


def goes_on(thought: Thought | None) -> bool:
    """Whether a chain can be continued after its last step, which must be there."""
    assert thought is not None
    return thought.goes_on
