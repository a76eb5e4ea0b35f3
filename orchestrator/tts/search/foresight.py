"""Foresight: predict the next expansions of a tree search, so that idle slots can begin them.

The candidates of the pools that are not decided yet are *prospects*: each may be kept and then
expanded. Children are shared out among prospects as if no further score were to come (`Shares`); a
child that an engine has already answered becomes a prospect of the next level. A guess is exact:
the request is the one that the search itself would send.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .base import StepConfig
from .candidates import Candidate, CandidateState, Pool, goes_on
from .protocol import Expand, Guess
from .thought import NodePath, Thought
from .tree import Rank

UNKNOWN_SCORE = 0.5
"""The score that a path is taken to have before any of its steps has been scored."""

Shares = Callable[[Sequence[float]], list[int]]
"""The children that candidates with these scores, best first, would get of one pool."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """A node that may be expanded in the iteration after `iteration` of the pool `key`."""

    node: NodePath
    chance: float
    """A rough probability that it will be."""
    score: float
    key: int
    iteration: int


def expandable(pool: Pool, cutoff: Rank | None) -> Iterator[Candidate]:
    """Candidates whose steps are complete and that may be expanded, as far as is known.

    `cutoff` is the rank that they must reach, if it is known.
    """
    for candidate in pool.candidates:
        complete = candidate.state is not CandidateState.GROWING
        if complete and candidate.active and (cutoff is None or candidate.best_rank <= cutoff):
            yield candidate


def prospects(pool: Pool, cutoff: Rank | None, shares: Shares) -> Iterator[Prospect]:
    """The pool's expandable candidates, each with its chance.

    Of the m candidates that compete, k would be kept. One that is r-th of the s that are scored so
    far is expected to end up (m + 1) / (s + 1) * r-th: order statistics of draws from one
    distribution. Of the others, k / m will be kept.
    """
    competing = len(pool.candidates) - pool.ended
    kept = _parents(shares, competing)
    scored = [candidate.end.path for candidate in pool.ranked_active]
    places = {path: place for place, path in enumerate(scored, start=1)}
    spread = kept * (len(scored) + 1) / (competing + 1)
    for candidate in expandable(pool, cutoff):
        path = candidate.end.path
        chance = spread / places[path] if path in places else kept / competing
        yield Prospect(path, min(1.0, chance), candidate.expected_score, pool.key, pool.iteration)


def foresee(
    roots: Iterable[Prospect],
    answered: Mapping[NodePath, tuple[Thought, ...]],
    config: StepConfig,
    request: Callable[[NodePath, bool], Expand],
    shares: Shares,
) -> Iterator[Guess]:
    """Expansions that may be asked for below the prospects; see `Search.foresee`.

    `request` is that of a candidate by its first node, and whether it is a whole chain.
    """
    level = 1
    ahead = list(roots)
    while ahead:
        ahead.sort(key=lambda p: (-p.chance, -p.score, p.node))
        answered_above: list[tuple[NodePath, Prospect]] = []
        for prospect, children in _ration(ahead, shares):
            for child in range(children):
                path = (*prospect.node, child)
                whole = config.is_whole(prospect.iteration + 1)
                if (thoughts := answered.get(path)) is None:
                    yield Guess(request(path, whole), level, prospect.chance)
                elif goes_on(thoughts[-1]) and not config.is_last(prospect.iteration + 1):
                    end = path + (0,) * (len(thoughts) - 1)
                    answered_above.append((end, prospect))
        ahead, level = _below(answered_above, config.n, shares), level + 1


def _ration(prospects: Sequence[Prospect], shares: Shares) -> list[tuple[Prospect, int]]:
    """The prospects, which are in order, each with the children that it would get."""
    pools: defaultdict[int, list[float]] = defaultdict(list)
    for prospect in prospects:
        pools[prospect.key].append(prospect.score)
    children = {key: iter(shares(scores)) for key, scores in pools.items()}
    return [(prospect, next(children[prospect.key])) for prospect in prospects]


def _below(answered: Sequence[tuple[NodePath, Prospect]], n: int, shares: Shares) -> list[Prospect]:
    """The prospects that foreseen candidates become, given by their last steps and what is above.

    Each has n rivals, and its score is taken to be that above.
    """
    if not answered:
        return []
    kept = _parents(shares, n)
    return [
        Prospect(end, above.chance * kept / n, above.score, above.key, above.iteration + 1)
        for end, above in answered
    ]


def _parents(shares: Shares, candidates: int) -> int:
    """How many of this number of candidates would get children if their scores were equal."""
    return sum(share > 0 for share in shares([UNKNOWN_SCORE] * candidates))
