"""Values of an answer, checked one by one: a server may answer anything. Pure.

Each function returns its value or raises EndpointError with a sentence that names the mistake: such
an answer would come again, so the request is not repeated.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, cast

from tts.base.errors import EndpointError

LEAST = -1e30
"""The logarithm of no probability at all."""
_MOST_SHOWN = 60


def bad(what: str, value: object) -> EndpointError:
    """The error for a value that is not `what`, as in "a list of token ids"."""
    excerpt = repr(value)
    if len(excerpt) > _MOST_SHOWN:
        excerpt = excerpt[:_MOST_SHOWN] + "..."
    return EndpointError(
        f"The server's answer holds {excerpt} where {what} should be.",
        hint="Is it a server of this kind, and a version that the documentation names? "
        "scripts/run check_servers URL tries all that is used of it.",
    )


def mapping(value: object, what: str = "an object") -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise bad(what, value)
    return cast(dict[str, Any], value)


def array(value: object, what: str = "a list") -> list[Any]:
    """A JSON array."""
    if not isinstance(value, list):
        raise bad(what, value)
    return value


def text(value: object, what: str = "a text") -> str:
    """A string."""
    if not isinstance(value, str):
        raise bad(what, value)
    return value


def only(value: object, what: str) -> Any:
    """The one element of a list, which `what` names."""
    items = array(value, what)
    if len(items) != 1:
        raise bad(what, value)
    return items[0]


def token_id(value: object) -> int:
    """A token id: a whole number from 0 that fits into 31 bits."""
    if type(value) is not int or not 0 <= value < 2**31:
        raise bad("a token id", value)
    return value


def token_ids(value: object) -> list[int]:
    """A list of token ids."""
    ids: list[int] = array(value, "a list of token ids")
    if ids and not (set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) < 2**31):
        for each in ids:
            token_id(each)
    return ids


def count(value: object) -> int | None:
    """A number of tokens, None where there is none."""
    return None if value is None else token_id(value)


def number(value: object, what: str = "a number") -> float:
    """A finite number; NaN is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise bad(what, value)
    return float(value)


def log_probability(value: object) -> float:
    """The natural logarithm of a probability; what rounding puts above 0 is 0."""
    log_prob = number(value, "the logarithm of a probability")
    if log_prob > 1e-3:
        raise bad("the logarithm of a probability", value)
    return min(log_prob, 0.0)


def log_of(value: object) -> float:
    """The natural logarithm of a probability, of 0 the lowest number."""
    probability = number(value, "a probability")
    if not -1e-6 <= probability <= 1 + 1e-6:
        raise bad("a probability", value)
    return math.log(min(probability, 1.0)) if probability > 0 else LEAST


def mean_weight(log_probs: Sequence[float], weights: Sequence[float]) -> float:
    """The mean of the weights under the softmax over the log-probabilities of their labels."""
    most = max(log_probs)
    shares = [math.exp(each - most) for each in log_probs]
    return math.fsum(map(operator.mul, shares, weights)) / math.fsum(shares)
