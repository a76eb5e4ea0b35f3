"""The n with which a strategy costs what it may: found by running a few problems.

Strategies mean different things by n (chains, beams, simulations), so at one n they
cost differently. At one mean cost per problem they can be compared.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tts.build.errors import ConfigError
from tts.session import Result

T = TypeVar("T")

PILOT_PROBLEMS = 60
"""Problems on which n is fitted: enough that their mean is within some 10% of that of all."""
PILOT_DRAW = 0
"""Seed of the draw."""
_FIRST_N = 8
_ROUNDS = 6
_CLOSE = 0.97
"""Share of the target that is close enough to it."""
_MOST_N = 4096
_STALLS = 2
"""After so many larger n in a row that cost no more, n is not used up. One may be chance."""
_GROWTH = 4
"""How many times larger than any before an n may be tried."""
_SEARCHED = 64
"""How far the next valid n may be, such as the next multiple of a beam width."""


@dataclass(frozen=True)
class Fitted(Generic[T]):
    """Parameters with an n that was fitted."""

    n: int
    config: T
    cost: float
    """The mean cost of a problem of the pilot; above the target if no n costs less."""


def pilot_of(problems: Sequence[T]) -> list[T]:
    """The problems to fit n on: `PILOT_PROBLEMS` of them, always the same of one list.

    They are drawn: every k-th problem is no sample of a list in which difficulty goes in cycles.
    """
    count = min(PILOT_PROBLEMS, len(problems))
    return random.Random(PILOT_DRAW).sample(list(problems), count)


def tokens_of(result: Result) -> int:
    """The generated tokens in a result's tree, as a budget counts them: none that were not used."""
    return result.tree.tokens if result.tree is not None else 0


async def fit_n(
    configured: Callable[[int], T],
    measure: Callable[[T], Awaitable[float]],
    target: float,
) -> Fitted[T]:
    """The largest n that was found to cost at most `target`; else the smallest there is.

    `configured` gives the parameters for an n, and raises ConfigError where a strategy has none;
    `measure` gives their mean cost per problem, which is expected to grow with n.
    """
    below: Fitted[T] | None = None
    above: Fitted[T] | None = None
    guess, stalls = _FIRST_N, 0
    for _ in range(_ROUNDS):
        found = _nearest(configured, guess, below, above)
        if found is None:
            break
        n, config = found
        tried = Fitted(n, config, await measure(config))
        if tried.cost > target:
            above = tried
        else:
            stalls = stalls + 1 if below and tried.cost <= below.cost else 0
            below = tried
            if tried.cost >= _CLOSE * target or stalls == _STALLS:
                break
        guess = _guess(below, above, target)
    fitted = below or above
    if fitted is None:
        raise ConfigError(f"No n from 1 to {_MOST_N} is valid.")
    return fitted


def _guess(below: Fitted[T] | None, above: Fitted[T] | None, target: float) -> int:
    """The n that costs `target` if the cost grows evenly between what was tried."""
    if below and above:
        share = (target - below.cost) / (above.cost - below.cost)
        return int(below.n + share * (above.n - below.n))
    known = below or above
    assert known is not None
    guess = known.n * target / known.cost if known.cost > 0 else _MOST_N
    return int(min(guess, _GROWTH * known.n, _MOST_N))


def _nearest(
    configured: Callable[[int], T],
    guess: int,
    below: Fitted[T] | None,
    above: Fitted[T] | None,
) -> tuple[int, T] | None:
    """The valid n nearest to a guess, between what was tried, and its parameters; None: none.

    Smaller ones are taken first.
    """
    least = below.n + 1 if below else 1
    most = above.n - 1 if above else _MOST_N
    guess = min(max(least, guess), most)
    down = range(guess, max(least, guess - _SEARCHED) - 1, -1)
    up = range(guess + 1, min(most, guess + _SEARCHED) + 1)
    for n in (*down, *up):
        try:
            return n, configured(n)
        except ConfigError:
            continue
    return None
