"""From a call's arguments to a plan, every mistake of theirs in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tts.build.spec import Deployment
from tts.problem import Problem
from tts.prompting import Models
from tts.scheduling import ScheduleName, SpeculationName

from .arguments import check_arguments
from .functions import name_of
from .limits import Limits
from .plan import Grading, Plan, check_lengths
from .strategy import StrategyLike, choose


@dataclass(frozen=True)
class Wishes:
    """How a program wants its problems solved, as it said it."""

    strategy: StrategyLike
    n: int | None
    seed: int
    schedule: ScheduleName
    speculation: SpeculationName
    in_flight: int | None = None
    grading: Grading = field(default_factory=Grading)
    limits: Limits = field(default_factory=Limits)


def make_plan(
    deployment: Deployment,
    problems: tuple[Problem, ...],
    wishes: Wishes,
    parameters: dict[str, Any],
    *,
    source: str,
    endpoints: tuple[object | None, object | None],
    models: Callable[[], Models],
) -> Plan:
    """A plan; `parameters` are the strategy's, `endpoints` the program's own.

    Raises ConfigError, or DatasetError for a problem that does not fit the models.
    """
    check_arguments(
        seed=wishes.seed,
        schedule=wishes.schedule,
        speculation=wishes.speculation,
        in_flight=wishes.in_flight,
        answer_of=wishes.grading.answer_of,
        equal=wishes.grading.equal,
        budget_tokens=wishes.limits.budget_tokens,
        deadline_s=wishes.limits.deadline_s,
    )
    if wishes.n is not None:
        parameters = {"n": wishes.n, **parameters}
    plan = Plan(
        deployment,
        problems,
        choose(wishes.strategy, deployment, parameters),
        wishes.seed,
        wishes.schedule,
        wishes.speculation,
        wishes.in_flight,
        source=source,
        grading=wishes.grading,
        endpoints={
            role: name_of(given)
            for role, given in zip(("generator", "verifier"), endpoints, strict=True)
            if given is not None
        },
        limits=wishes.limits,
    )
    check_lengths(models(), problems)
    return plan
