"""Problems from what a program writes down: questions, pairs of question and answer, Problems."""

from __future__ import annotations

from collections.abc import Iterable

from tts.build.errors import DatasetError
from tts.problem import Problem

Question = str | tuple[str, str] | Problem
"""A question, a (question, reference answer) pair, or a Problem."""


def as_problem(question: Question, name: str) -> Problem:
    """`name` becomes its id unless it is a Problem; raises DatasetError for anything else."""
    match question:
        case Problem():
            return question
        case str() if question.strip():
            return Problem(name, question)
        case (str() as text, str() as answer) if text.strip():
            return Problem(name, text, answer)
    raise DatasetError(
        f"Problem {name} is {question!r:.200}, which is no question.",
        hint="Give a text, a pair of texts (question, answer), or a tts.problem.Problem.",
    )


def as_problems(questions: Iterable[Question]) -> tuple[Problem, ...]:
    """Questions in order, named 1, 2, ... by their place; raises DatasetError.

    The ids, which seeds depend on, must be unique.
    """
    if isinstance(questions, str | Problem):
        raise DatasetError(
            f"solve_many takes several problems, not {questions!r:.100}.",
            hint="Give a list, or use solve.",
        )
    problems = tuple(as_problem(each, str(place)) for place, each in enumerate(questions, start=1))
    if not problems:
        raise DatasetError("There are no problems to solve.")
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise DatasetError(f"Two problems have the id {problem.id!r}; ids must be unique.")
        seen.add(problem.id)
    return problems
