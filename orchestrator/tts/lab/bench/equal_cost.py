"""Strategies at equal cost: the n of each is fitted to one mean cost per problem.

A strategy that shares out the tokens of a run, `auto`, has its budget of tokens fitted where the
cost is in seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

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

TOKENS_STEP = 16
"""Tokens in which a budget is fitted to a mean of seconds."""

Cold = Callable[[Deployment], Awaitable[AsyncSession]]


@dataclass(frozen=True)
class Share:
    """Parameters of a strategy, with a fitted n, a fitted budget or neither."""

    config: SearchConfig
    budget_tokens: int | None = None
    """Of a strategy that shares out the tokens of a run: the mean that takes so many seconds."""


async def fit_all(
    asked: RunConfig,
    deployment: Deployment,
    problems: Sequence[Problem],
    names: Sequence[Sequence[str]],
    cold: Cold,
    say: Callable[[str], None],
) -> dict[str, Share]:
    """The share of every strategy at the mean cost that `asked.fitted_to` says.

    `names` are the strategies, those that are one search together. `cold` gives a session with
    empty caches.
    """
    pilot = pilot_of(problems)
    found: dict[str, Share] = {}
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
) -> Share:
    given = settable_of(strategy, asked.parameters)
    takes_budget = strategy.config.TAKES_BUDGET
    if "n" in strategy.fixed or (takes_budget and asked.fitted_to.budget_tokens is not None):
        return Share(configure(strategy, deployment, given))

    async def share_of_budget(config: SearchConfig, budget_tokens: int | None = None) -> float:
        session = await cold(deployment)
        results = session.solve_many(
            pilot,
            strategy=config,
            seed=PILOT_SEED,
            budget_tokens=budget_tokens,
            schedule=asked.schedule,
            speculation=asked.speculation,
            in_flight=asked.in_flight,
        )
        costs = [(tokens_of(result), result.usage.seconds) async for result in results]
        tokens, seconds = (sum(cost) / len(pilot) for cost in zip(*costs, strict=True))
        return share(asked.fitted_to, tokens, seconds)

    def report(what: str, cost: float) -> None:
        over = ", the least there is" if cost > 1 else ""
        say(f"{strategy.name}: {what} takes {cost:.0%} of the budget{over}")

    if takes_budget:
        config = configure(strategy, deployment, given)
        budget = await fit_n(
            lambda steps: steps * TOKENS_STEP, lambda tokens: share_of_budget(config, tokens), 1.0
        )
        report(f"a mean of {budget.config:,} tokens", budget.cost)
        return Share(config, budget.config)
    fitted = await fit_n(
        lambda n: configure(strategy, deployment, {**given, "n": n}), share_of_budget, 1.0
    )
    report(f"n={fitted.n}", fitted.cost)
    return Share(fitted.config)


def share(budget: Limits, tokens: float, seconds: float) -> float:
    """The share of a budget that these means per problem use; of several the largest."""
    costs = ((tokens, budget.budget_tokens), (seconds, budget.deadline_s))
    return max(cost / max(most, 1e-9) for cost, most in costs if most is not None)
