"""Problems from what a program writes down: questions, pairs of question and answer, Problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from tts.build.errors import DatasetError
from tts.problem import Problem

Question = str | tuple[str, str] | Problem
"""A question, a (question, reference answer) pair, or a Problem."""

_HINT = "Give a text, a pair of texts (question, answer), or a tts.problem.Problem."


def as_problem(question: Question, name: str) -> Problem:
    """`name` becomes its id unless it is a Problem; raises DatasetError for anything else."""
    match question:
        case Problem():
            problem = question
        case str() if question.strip():
            problem = Problem(name, question)
        case (str() as text, str() as answer) if text.strip():
            problem = Problem(name, text, answer)
        case _:
            raise DatasetError(
                f"Problem {name} is {question!r:.200}, which is no question.", hint=_HINT
            )
    _check(problem)
    return problem


def as_problems(questions: Iterable[Question]) -> tuple[Problem, ...]:
    """Questions in order, named 1, 2, ... by their place; raises DatasetError.

    The ids, which seeds depend on, must be unique.
    """
    if isinstance(questions, str | bytes | Problem | Mapping) or not isinstance(
        questions, Iterable
    ):
        raise DatasetError(
            f"solve_many takes several problems, not {questions!r:.100}.",
            hint="Give a list of them; one problem: solve.",
        )
    if isinstance(questions, Set):  # the places, and so the seeds, would be others in each process
        raise DatasetError("A set of problems has no order.", hint="Give a list.")
    problems = tuple(as_problem(each, str(place)) for place, each in enumerate(questions, start=1))
    if not problems:
        raise DatasetError("There are no problems to solve.")
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise DatasetError(f"Two problems have the id {problem.id!r}; ids must be unique.")
        seen.add(problem.id)
    return problems


def check_question(text: object, what: str = "The question") -> None:
    """Raise DatasetError unless this is a text that says something."""
    if not isinstance(text, str):
        raise DatasetError(f"{what} is {text!r:.200}, which is no text.", hint=_HINT)
    if not text.strip():
        raise DatasetError(f"{what} is empty.", hint=_HINT)
    _check_unicode(text, what)


def _check(problem: Problem) -> None:
    if not isinstance(problem.id, str) or not problem.id:
        raise DatasetError(f"The id of a problem is {problem.id!r:.200}; it must be a text.")
    _check_unicode(problem.id, "The id of a problem")
    check_question(problem.question, f"The question of problem {problem.id}")
    if problem.answer is not None:
        what = f"The answer of problem {problem.id}"
        if not isinstance(problem.answer, str):
            raise DatasetError(f"{what} is {problem.answer!r:.200}; it must be a text, or None.")
        _check_unicode(problem.answer, what)
    if not isinstance(problem.level, str | int | None):
        raise DatasetError(
            f"The level of problem {problem.id} is {problem.level!r:.200}; it must be a text or a "
            "number."
        )


def _check_unicode(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DatasetError(
            f"{what} is {text!r:.200}, which is no Unicode text: it holds half of a surrogate pair."
        ) from error
