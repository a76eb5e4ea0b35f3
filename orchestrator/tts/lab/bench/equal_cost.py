"""A budget chooses n: that of a strategy, or of several, is fitted to one mean cost per problem.

A strategy that shares out the tokens of a run, `auto`, has its budget of tokens fitted where the
cost is in seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tts.build.spec import Deployment
from tts.problem import Problem
from tts.runs.config import Limits, RunConfig
from tts.search import SearchConfig
from tts.session import AsyncSession
from tts.session.strategy import StrategyLike, choose

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


async def fit(
    asked: RunConfig,
    deployment: Deployment,
    strategy: StrategyLike,
    given: dict[str, Any],
    problems: Sequence[Problem],
    cold: Cold,
    say: Callable[[str], None],
) -> Share:
    """The share of a strategy at the mean cost that `asked.fitted_to` says, found on a pilot.

    `given` are its parameters; `cold` gives a session with empty caches. Raises a TtsError.
    """
    pilot = pilot_of(problems)
    chosen = choose(strategy, deployment, given)
    default = chosen.config
    assert default is not None
    takes_budget = default.TAKES_BUDGET
    if takes_budget and asked.fitted_to.budget_tokens is not None:
        return Share(default)

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
        say(f"{chosen.name}: {what} takes {cost:.0%} of the budget{over}")

    if takes_budget:
        budget = await fit_n(
            lambda steps: steps * TOKENS_STEP, lambda tokens: share_of_budget(default, tokens), 1.0
        )
        report(f"a mean of {budget.config:,} tokens", budget.cost)
        return Share(default, budget.config)

    def configured(n: int) -> SearchConfig:
        found = choose(strategy, deployment, {**given, "n": n, **_narrower(default, given, n)})
        assert found.config is not None
        return found.config

    fitted = await fit_n(configured, share_of_budget, 1.0)
    report(f"n={fitted.n}", fitted.cost)
    return Share(fitted.config)


def _narrower(default: SearchConfig, given: Mapping[str, Any], n: int) -> dict[str, int]:
    """The width of fewer beams than a group has by default, which is then n; else nothing."""
    name = "beam_width"
    field = type(default).model_fields.get(name)
    untouched = field and name not in given and getattr(default, name) == field.default
    return {name: n} if field and untouched and n < field.default else {}


def share(budget: Limits, tokens: float, seconds: float) -> float:
    """The share of a budget that these means per problem use; of several the largest."""
    costs = ((tokens, budget.budget_tokens), (seconds, budget.deadline_s))
    return max(cost / max(most, 1e-9) for cost, most in costs if most is not None)
