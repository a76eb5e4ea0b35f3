"""What is done with each problem of a plan, for as long as the plan is carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tts.grading import Equality

from .functions import FunctionGrader, checked_answer_of
from .plan import Plan
from .result import Step
from .solver import Task


@contextmanager
def task_of(
    plan: Plan,
    equality: Equality,
    on_step: Callable[[Step], None] | None,
    on_server: Callable[[str], None] | None = None,
) -> Iterator[Task]:
    """The task of a plan; answers are compared by `equality` unless the program has its own way."""
    given = plan.grading
    answer_of = checked_answer_of(given.answer_of) if given.answer_of else None
    own = FunctionGrader(given.equal) if given.equal else None
    try:
        yield Task(
            plan.strategy,
            plan.seed,
            own or equality,
            replace(given, answer_of=answer_of),
            on_step,
            plan.limits.budget_tokens,
            on_server,
        )
    finally:
        if own:
            own.close()
