"""Strategies at equal cost: the n of each is fitted to one mean cost per problem."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tts.build.spec import Deployment
from tts.problem import Problem
from tts.runs.config import Limits, RunConfig
from tts.search import SearchConfig
from tts.session import AsyncSession
from tts.strategies.catalog import find_strategy
from tts.strategies.parameters import configure, settable_of
from tts.strategies.strategy import Strategy

from .fitting import fit_n, pilot_of, tokens_of

PILOT_SEED = 1_000_003
"""A seed of its own: n is fitted on other samples than those that are reported."""

Cold = Callable[[Deployment], Awaitable[AsyncSession]]


async def fit_all(
    asked: RunConfig,
    deployment: Deployment,
    problems: Sequence[Problem],
    names: Sequence[Sequence[str]],
    cold: Cold,
    say: Callable[[str], None],
) -> dict[str, SearchConfig]:
    """The parameters of every strategy, with an n of the mean cost that `asked.fitted_to` says.

    `names` are the strategies, those that are one search together. `cold` gives a session with
    empty caches.
    """
    pilot = pilot_of(problems)
    found: dict[str, SearchConfig] = {}
    for together in names:
        strategy = find_strategy(together[0])
        fitted = await _fit(asked, deployment, strategy, pilot, cold, say)
        found |= dict.fromkeys(together, fitted)
    return found


async def _fit(
    asked: RunConfig,
    deployment: Deployment,
    strategy: Strategy,
    pilot: Sequence[Problem],
    cold: Cold,
    say: Callable[[str], None],
) -> SearchConfig:
    given = settable_of(strategy, asked.parameters)
    if "n" in strategy.fixed or strategy.config.TAKES_BUDGET:
        return configure(strategy, deployment, given)

    async def share_of_budget(config: SearchConfig) -> float:
        session = await cold(deployment)
        results = session.solve_many(
            pilot,
            strategy=config,
            seed=PILOT_SEED,
            schedule=asked.schedule,
            speculation=asked.speculation,
            in_flight=asked.in_flight,
        )
        costs = [(tokens_of(result), result.usage.seconds) async for result in results]
        tokens, seconds = (sum(cost) / len(pilot) for cost in zip(*costs, strict=True))
        return share(asked.fitted_to, tokens, seconds)

    fitted = await fit_n(
        lambda n: configure(strategy, deployment, {**given, "n": n}), share_of_budget, 1.0
    )
    over = ", the least there is" if fitted.cost > 1 else ""
    say(f"{strategy.name}: n={fitted.config.n} takes {fitted.cost:.0%} of the budget{over}")
    return fitted.config


def share(budget: Limits, tokens: float, seconds: float) -> float:
    """The share of a budget that these means per problem use; of several the largest."""
    costs = ((tokens, budget.budget_tokens), (seconds, budget.deadline_s))
    return max(cost / max(most, 1e-9) for cost, most in costs if most is not None)
