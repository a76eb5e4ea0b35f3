"""Problems from a program's questions, conversations and pairs with an answer."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
    Set,
)
from typing import TypeGuard, TypeVar

from tts.base.errors import DatasetError
from tts.build.tokenizer import Message
from tts.problem import SPEAKERS, Problem, Turn

T = TypeVar("T")

Asked = str | Sequence[Message]
"""A question, or a conversation whose last message is the question."""
Question = Asked | tuple[Asked, str] | Problem
"""A question, a pair of it and the reference answer, or a Problem."""

_HINT = (
    "Give a text, a list of chat messages, a tuple of either and the answer, or a "
    "tts.problem.Problem. Several questions: solve_many."
)


def as_problem(question: Question, name: str) -> Problem:
    """`name` becomes its id unless it is a Problem; raises DatasetError for anything else."""
    match question:
        case Problem():
            problem = question
        case (str() | [*_] as prompt, str() as answer) if (
            isinstance(question, tuple) and _is_asked(prompt)  # a list of two texts: two questions
        ):
            problem = _problem(name, prompt, answer)
        case _ if _is_asked(question):
            problem = _problem(name, question)
        case _:
            raise DatasetError(
                f"Problem {name} is {question!r:.200}, which is no question.", hint=_HINT
            )
    _check(problem)
    return problem


def _is_asked(value: object) -> TypeGuard[Asked]:
    if isinstance(value, str):
        return bool(value.strip())
    return isinstance(value, list | tuple) and bool(value) and all(map(is_message, value))


def is_message(value: object) -> TypeGuard[Message]:
    """Whether this is a chat message, whatever its role."""
    return isinstance(value, Mapping) and all(
        isinstance(value.get(name), str) for name in ("role", "content")
    )


def _problem(name: str, prompt: Asked, answer: str | None = None) -> Problem:
    if isinstance(prompt, str):
        return Problem(name, prompt, answer)
    *before, last = (Turn(each["role"], each["content"]) for each in prompt)  # type: ignore[arg-type]
    if last.role != "user":
        raise DatasetError(
            f"The conversation of problem {name} ends with a message of the role "
            f"{last.role!r:.50}: a search answers the last message, which must be the user's.",
            hint="Leave out what follows the user's last message.",
        )
    return Problem(name, last.content, answer, history=tuple(before))


def as_problems(questions: Iterable[Question]) -> tuple[Problem, ...]:
    """Questions named 1, 2, ... by their place, with unique ids; raises DatasetError."""
    problems = tuple(map(_naming(), questions))
    if not problems:
        raise _none()
    return problems


async def problems_in_turn(questions: AsyncIterable[Question]) -> AsyncIterator[Problem]:
    """`as_problems` that takes each question when its problem is asked for."""
    name = _naming()
    empty = True
    async for question in questions:
        empty = False
        yield name(question)
    if empty:
        raise _none()


async def in_turn(items: Iterable[T]) -> AsyncGenerator[T, None]:
    """Items, taken on the event loop, which goes on between those that are made one by one."""
    for item in items:
        yield item
        if not isinstance(items, Sequence):
            await asyncio.sleep(0)


def _naming() -> Callable[[Question], Problem]:
    """A function that makes a problem of one question after the other; raises DatasetError."""
    places = itertools.count(1)
    ids: set[str] = set()

    def problem_of(question: Question) -> Problem:
        problem = as_problem(question, str(next(places)))
        if problem.id in ids:
            raise DatasetError(f"Two problems have the id {problem.id!r}; ids must be unique.")
        ids.add(problem.id)
        return problem

    return problem_of


def _none() -> DatasetError:
    return DatasetError("There are no problems to solve.")


def require_several(questions: object) -> None:
    """Raise DatasetError unless these are several questions in an order."""
    if isinstance(questions, str | bytes | Problem | Mapping) or not isinstance(
        questions, Iterable | AsyncIterable
    ):
        raise DatasetError(
            f"solve_many takes several problems, not {questions!r:.100}.",
            hint="Give a list of them; one problem: solve.",
        )
    if isinstance(questions, Set):  # the places, and so the seeds, would be others in each process
        raise DatasetError("A set of problems has no order.", hint="Give a list.")


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
    _check_history(problem)
    if problem.answer is not None:
        what = f"The answer of problem {problem.id}"
        if not isinstance(problem.answer, str):
            raise DatasetError(f"{what} is {problem.answer!r:.200}; it must be a text, or None.")
        _check_unicode(problem.answer, what)
    for name in ("chat_template_kwargs", "extra"):
        if not _is_json_mapping(value := getattr(problem, name)):
            raise DatasetError(
                f"{name} of problem {problem.id} is {value!r:.200}; it must be a dict of names and "
                "JSON values."
            )
    if not isinstance(problem.level, str | int | None):
        raise DatasetError(
            f"The level of problem {problem.id} is {problem.level!r:.200}; it must be a text or a "
            "number."
        )


def _is_json_mapping(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return isinstance(value, dict) and all(isinstance(name, str) for name in value)


def _check_history(problem: Problem) -> None:
    what = f"The history of problem {problem.id}"
    turns = problem.history
    if not isinstance(turns, tuple) or not all(isinstance(turn, Turn) for turn in turns):
        raise DatasetError(f"{what} is {turns!r:.200}; it must be a tuple of tts.problem.Turn.")
    for turn in turns:
        if turn.role not in SPEAKERS:
            raise DatasetError(
                f"{what} has a message of the role {turn.role!r:.50}; "
                f"there are {', '.join(SPEAKERS)}."
            )
        if not isinstance(turn.content, str):
            raise DatasetError(f"{what} has a message {turn.content!r:.200}, which is no text.")
        _check_unicode(turn.content, what)


def _check_unicode(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DatasetError(
            f"{what} is {text!r:.200}, which is no Unicode text: it holds half of a surrogate pair."
        ) from error
