"""The work on each problem of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tts.grading import Equality
from tts.problem import Problem
from tts.search import Allocation, BudgetedSearch, Generated, NodePath, Scored, Search

from .functions import FunctionGrader, answer_form_of, checked_answer_of
from .plan import Grading, Plan
from .result import Step
from .strategy import ChosenStrategy


@dataclass(frozen=True)
class Task:
    """The work on each problem. Made by `task_of`."""

    strategy: ChosenStrategy
    seed: int
    equality: Equality
    grading: Grading = field(default_factory=Grading)
    on_step: Callable[[Step], None] | None = None
    budget_tokens: int | None = None
    """Generated tokens that a problem's tree may hold; None: any number. With an allocation it is
    the mean of the problems."""
    on_server: Callable[[str], None] | None = None
    """Called with the server that a problem goes to; again when it moves to another."""
    allocation: Allocation | None = None
    """Source of the advice to each problem, for a strategy that takes advice."""

    def new_search(self, problem: Problem) -> Search:
        """A new search for a problem, within its budget."""
        answer_of = self.grading.answer_of or self.strategy.ballot.answer_of
        form = answer_form_of(answer_of, self.grading.equal)
        advice = self.allocation.advice(problem.id) if self.allocation else None
        search = self.strategy.new_search(problem, self.seed, form, advice)
        tokens = advice.cap if advice else self.budget_tokens
        if tokens is None:
            return search
        return BudgetedSearch(search, tokens, foresees=advice is not None)


@contextmanager
def task_of(
    plan: Plan,
    equality: Equality,
    on_step: Callable[[Step], None] | None,
    on_server: Callable[[str], None] | None = None,
) -> Iterator[Task]:
    """The task of a plan; `equality` compares answers unless the program has its own function."""
    given, asked = plan.grading, plan.asked
    answer_of = checked_answer_of(given.answer_of) if given.answer_of else None
    own = FunctionGrader(given.equal) if given.equal else None
    try:
        yield Task(
            plan.strategy,
            asked.seed,
            own or equality,
            replace(given, answer_of=answer_of),
            on_step,
            asked.limits.budget_tokens,
            on_server,
            Allocation(asked.limits.budget_tokens) if plan.strategy.takes_advice else None,
        )
    finally:
        if own:
            own.close()


class StepCallbacks:
    """Turns the results of one search into steps for the program's callback."""

    def __init__(self, problem: Problem, on_step: Callable[[Step], None]) -> None:
        self.search: Search | None = None
        self._problem = problem
        self._on_step = on_step
        self._texts: dict[NodePath, str] = {}
        self._scored: set[NodePath] = set()

    def tell(self, result: Generated | Scored) -> None:
        """Report a written or scored step once; a search that changes servers repeats its steps."""
        if isinstance(result, Scored):
            if result.node not in self._scored:
                self._scored.add(result.node)
                self._step(result.node, result.score)
            return
        node = result.node
        for thought in result.thoughts:
            if node not in self._texts:
                self._texts[node] = thought.text
                self._step(node, None)
            node = (*node, 0)

    def _step(self, node: NodePath, score: float | None) -> None:
        tree = self.search.tree if self.search else None
        self._on_step(Step(self._problem, node, self._texts[node], score, tree))
