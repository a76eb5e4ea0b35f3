"""A budget chooses n: the largest with which a strategy costs no more tokens, on a few problems.

Strategies mean different things by n (chains, beams, simulations), so at one n they cost
differently. At one mean cost per problem they can be compared.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tts.base.errors import ConfigError
from tts.search import SearchConfig
from tts.session.plan import Plan
from tts.session.strategy import StrategyLike, choose

from ..campaign import Campaign

T = TypeVar("T")

PILOT_PROBLEMS = 60
"""Problems on which n is fitted: enough that their mean is within some 10% of that of all."""
PILOT_DRAW = 0
"""Seed of the draw."""
PILOT_SEED = 1_000_003
"""A seed of its own: n is fitted on other samples than those that are reported."""
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
class Fitted:
    """Parameters with an n that was fitted."""

    config: SearchConfig
    cost: float
    """The mean cost of a problem of the pilot; above the target if no n costs less."""

    @property
    def n(self) -> int:
        """The n that was fitted."""
        return self.config.n


async def fit(
    plan: Plan, strategy: StrategyLike, parameters: dict[str, Any], campaign: Campaign
) -> SearchConfig:
    """A strategy's parameters with the n that costs `plan.request.fitted_to` on average.

    One that shares out a budget by itself has no n to fit. `parameters` are those that are set.
    Raises a TtsError.
    """
    request, deployment = plan.request, plan.deployment
    pilot = pilot_of(plan.problems)
    base = choose(strategy, deployment, parameters)
    default, budget = base.config, request.fitted_to.budget_tokens
    assert default is not None
    assert budget is not None
    if default.TAKES_BUDGET:
        return default
    session = await campaign.session(deployment)

    def configured(n: int) -> SearchConfig:
        config = choose(strategy, deployment, {**parameters, "n": n}).config
        assert config is not None
        return config

    async def tokens(config: SearchConfig) -> float:
        results = session.solve_many(
            pilot,
            strategy=config,
            seed=PILOT_SEED,
            schedule=request.schedule,
            speculation=request.speculation,
            in_flight=request.in_flight,
        )
        # as a budget counts them: of both models, and none that were generated in vain
        counts = [r.tree.tokens + r.usage.critique_tokens async for r in results if r.tree]
        return sum(counts) / len(pilot)

    fitted = await fit_n(configured, tokens, budget)
    over = ", and no smaller n exists" if fitted.cost > budget else ""
    campaign.observer.say(
        f"{base.name}: n={fitted.n} takes {fitted.cost / budget:.0%} of the budget{over}"
    )
    return fitted.config


def pilot_of(problems: Sequence[T]) -> list[T]:
    """The problems to fit n on: `PILOT_PROBLEMS` of them, always the same of one list.

    They are drawn: every k-th problem is no sample of a list in which difficulty goes in cycles.
    """
    count = min(PILOT_PROBLEMS, len(problems))
    return random.Random(PILOT_DRAW).sample(list(problems), count)


async def fit_n(
    configured: Callable[[int], SearchConfig],
    measure: Callable[[SearchConfig], Awaitable[float]],
    target: float,
) -> Fitted:
    """The largest n that was found to cost at most `target`; else the smallest there is.

    `configured` gives the parameters for an n, and raises ConfigError where a strategy has none;
    `measure` gives their mean cost per problem, which is expected to grow with n.
    """
    below: Fitted | None = None
    above: Fitted | None = None
    guess, stalls = _FIRST_N, 0
    for _ in range(_ROUNDS):
        config = _nearest(configured, guess, below, above)
        if config is None:
            break
        trial = Fitted(config, await measure(config))
        if trial.cost > target:
            above = trial
        else:
            stalls = stalls + 1 if below and trial.cost <= below.cost else 0
            below = trial
            if trial.cost >= _CLOSE * target or stalls == _STALLS:
                break
        guess = _guess(below, above, target)
    fitted = below or above
    if fitted is None:
        raise ConfigError(f"No n from 1 to {_MOST_N} is valid.")
    return fitted


def _guess(below: Fitted | None, above: Fitted | None, target: float) -> int:
    """The n that costs `target` if the cost grows evenly between what was tried."""
    if below and above:
        share = (target - below.cost) / (above.cost - below.cost)
        return int(below.n + share * (above.n - below.n))
    trial = below or above
    assert trial is not None
    guess = trial.n * target / trial.cost if trial.cost > 0 else _MOST_N
    return int(min(guess, _GROWTH * trial.n, _MOST_N))


def _nearest(
    configured: Callable[[int], SearchConfig],
    guess: int,
    below: Fitted | None,
    above: Fitted | None,
) -> SearchConfig | None:
    """The parameters with the valid n nearest to a guess, between what was tried; None: none.

    Smaller ones are taken first.
    """
    least = below.n + 1 if below else 1
    most = above.n - 1 if above else _MOST_N
    guess = min(max(least, guess), most)
    down = range(guess, max(least, guess - _SEARCHED) - 1, -1)
    up = range(guess + 1, min(most, guess + _SEARCHED) + 1)
    for n in (*down, *up):
        try:
            return configured(n)
        except ConfigError:
            continue
    return None
