"""Python functions of the user's own in the place of an engine or of the grader."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tts.build.errors import FunctionError
from tts.endpoints.base import ScoreCall, VerifierResult
from tts.grading import Outcome, Reason, Verdict, canonical, extract_answer, is_integer
from tts.search import AnswerForm

RewardFunction = Callable[[str, list[str]], float | Awaitable[float]]
"""Question and steps of a chain to the score of its last step, within [0, 1]."""
AnswerFunction = Callable[[str], str | None]
"""The text of a completion to its final answer, or None."""
EqualFunction = Callable[[str, str], bool | Awaitable[bool]]
"""Whether an answer (first) is equal to a reference, or to another answer."""


def name_of(function: object) -> str:
    """A function as an error names it: module and qualified name."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}.{name}"


class Caller:
    """Calls a user's function: an async one here, another one in a worker thread, in turn."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = name_of(function)
        self._function = function
        call = getattr(function, "__call__", None)  # noqa: B004 - of an object: may be async def
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self.name)

    async def __call__(self, *arguments: Any) -> Any:
        """What the function returns; raises FunctionError from what it raises."""
        try:
            if self._is_async:
                return await self._function(*arguments)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._function, *arguments)
        except Exception as error:
            raise _failed(self.name, error) from error

    def close(self) -> None:
        """End the worker thread; a call that has begun is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class FunctionVerifier:
    """A reward function as a verifier: text in, a number within [0, 1] out."""

    def __init__(self, function: RewardFunction) -> None:
        self._call = Caller(function)

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier; raises FunctionError naming the function and what it gave."""
        score = await self._call(call.question, list(call.steps))
        try:
            number = float(score)
        except (TypeError, ValueError):
            number = math.nan
        if isinstance(score, str) or not 0.0 <= number <= 1.0:
            raise FunctionError(
                f"{self._call.name} gave {score!r} for a chain of {len(call.steps)} steps of "
                f"{call.question!r:.80}; a score must be a number within [0, 1].",
                hint="For rewards on another scale, return for instance 1 / (1 + exp(-reward)).",
            )
        return VerifierResult(number)

    def close(self) -> None:
        """End the worker thread."""
        self._call.close()


class FunctionGrader:
    """A user's `equal` in the place of the grader."""

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
        try:
            answer = function(text)
        except Exception as error:
            raise _failed(name_of(function), error) from error
        if answer is not None and not isinstance(answer, str):
            raise FunctionError(
                f"{name_of(function)} gave {answer!r:.200}; an answer must be a text or None.",
                hint="Return the answer as a text.",
            )
        return answer

    return answer_of


def answer_form_of(
    answer_of: AnswerFunction | None, equal: EqualFunction | None
) -> Callable[[str], AnswerForm | None]:
    """What a search that stops early may know of a completion's answer.

    With an `equal` of the user's own only the same characters are known to be the same answer, and
    no two answers are known to differ.
    """
    extract = answer_of or extract_answer

    def form(text: str) -> AnswerForm | None:
        answer = extract(text)
        if answer is None:
            return None
        if equal is not None:
            return AnswerForm(answer, False)
        plain = canonical(answer)
        return AnswerForm(plain, is_integer(plain))

    return form


def _failed(name: str, error: Exception) -> FunctionError:
    return FunctionError(
        f"{name} raised {type(error).__name__}: {error}",
        hint="The traceback of its own error stands above this one.",
    )
