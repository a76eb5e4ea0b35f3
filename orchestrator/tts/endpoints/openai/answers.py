"""Answers of servers, checked: a server may answer anything. Pure."""

from __future__ import annotations

import math
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from tts.build.errors import EndpointError

TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
LogProb = Annotated[float, Meta(ge=-1e300, le=1e-3)]
"""The natural logarithm of a probability, which rounding may put above 0."""
Probability = Annotated[float, Meta(ge=-1e-6, le=1 + 1e-6)]

LEAST = -1e30
"""The logarithm of no probability at all."""
_MOST_SHOWN = 60
_HINT = (
    "Is it a server of this kind, and a version that the documentation names? "
    "scripts/run check_servers URL tries all that is used of it."
)

T = TypeVar("T")


def read(answer: object, kind: type[T]) -> T:
    """An answer as a type; raises EndpointError naming the place at which it is another.

    Such an answer would come again, so the request is not repeated.
    """
    try:
        return msgspec.convert(answer, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise EndpointError(f"The server's answer is wrong: {error}.", _HINT) from None


def bad(what: str, value: object) -> EndpointError:
    """The error for a value that is not `what`, as in "log-probabilities of 3 tokens"."""
    shown = repr(value)
    if len(shown) > _MOST_SHOWN:
        shown = shown[:_MOST_SHOWN] + "..."
    return EndpointError(f"The server's answer holds {shown} where {what} should be.", _HINT)


def share(first: float, second: float) -> float:
    """exp(first) / (exp(first) + exp(second)), without overflow."""
    difference = second - first
    small = math.exp(-abs(difference))
    return (small if difference > 0 else 1.0) / (1 + small)
