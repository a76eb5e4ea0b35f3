"""Python functions of the program that replace the grader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tts.base.errors import FunctionError
from tts.endpoints.functions import Caller, described, name_of, users_code
from tts.grading import Outcome, Reason, Verdict, canonical, is_integer
from tts.search import AnswerForm

AnswerFunction = Callable[[str], str | None]
"""The text of a completion to its final answer, or None."""
EqualFunction = Callable[[str, str], bool | Awaitable[bool]]
"""Whether an answer (first) is equal to a reference, or to another answer."""


class FunctionGrader:
    """A grader that calls a user's `equal`."""

    def __init__(self, equal: EqualFunction) -> None:
        self._call = Caller(equal)

    async def equal(self, prediction: str | None, reference: str) -> Verdict:
        """See grading.Grader.equal."""
        if prediction is None:
            return Verdict(Outcome.DIFFERENT, Reason.NO_ANSWER)
        outcome = await self._call(prediction, reference)
        return Verdict(Outcome.EQUAL if outcome else Outcome.DIFFERENT, Reason.FUNCTION)

    def close(self) -> None:
        """End the worker thread."""
        self._call.close()


def checked_answer_of(function: AnswerFunction) -> AnswerFunction:
    """A program's own `answer_of`, whose failures name it; raises FunctionError."""

    def answer_of(text: str) -> str | None:
        with users_code(name_of(function)):
            answer = function(text)
        if answer is not None and not isinstance(answer, str):
            raise FunctionError(
                f"{name_of(function)} gave {described(answer)}; an answer must be a text or None.",
                hint="Return the answer as a text.",
            )
        return answer

    return answer_of


def answer_form_of(
    answer_of: AnswerFunction, *, by_text: bool
) -> Callable[[str], AnswerForm | None]:
    """The form of a completion's answer, for searches that stop early.

    `by_text`, as with a user's `equal`: only identical texts are known to be the same answer, and
    no two answers are known to differ.
    """

    def form(text: str) -> AnswerForm | None:
        answer = answer_of(text)
        if answer is None:
            return None
        if by_text:
            return AnswerForm(answer, False)
        plain = canonical(answer)
        return AnswerForm(plain, is_integer(plain))

    return form
