"""Which scores of a pool are needed first, of those that may turn out not to be needed.

A candidate is pruned without a score once as many as are kept outrank the best that it can reach.
So nothing can spare a pool the scores of its first candidates, by the best rank that each could
reach, as many as it keeps: its *contenders*. One that does not reach its best rank, or has ended,
lets the next candidate in. Where all could score the same, scores asked for in this order are all
needed; those of the others are not, if enough contenders reach their best rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from .candidates import Candidate, State
from .thought import NodePath


class Contenders:
    """The contenders of one pool."""

    def __init__(self, candidates: Sequence[Candidate], kept: int) -> None:
        """`candidates` have not grown yet; `kept`: how many of them the pool keeps at most."""
        self._order = sorted(candidates, key=best_first)
        self._places = {candidate: place for place, candidate in enumerate(self._order)}
        self._count = min(kept, len(self._order))
        self._out: set[Candidate] = set()

    def after(self, latest: Candidate) -> list[Candidate]:
        """After a step or score of `latest`: contenders that have come to wait for their scores."""
        waiting: list[Candidate] = []
        entered = [latest] if self._places[latest] < self._count else []
        while entered:
            candidate = entered.pop()
            if candidate.state is State.SCORING:
                waiting.append(candidate)
            if _is_out(candidate) and candidate not in self._out:
                self._out.add(candidate)
                if self._count < len(self._order):
                    entered.append(self._order[self._count])
                    self._count += 1
        return waiting


def best_first(candidate: Candidate) -> tuple[float, NodePath]:
    """Sort key by which the candidates of a pool could rank at best."""
    return -candidate.upper_bound, candidate.end.path


def _is_out(candidate: Candidate) -> bool:
    """Whether it does not outrank all candidates after it: it has ended, or has a lower score."""
    missed = candidate.state is State.READY and candidate.expected_score < candidate.upper_bound
    return missed or not candidate.active
