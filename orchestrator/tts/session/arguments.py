"""Arguments of the Python API, checked before anything is sent: each mistake in a sentence."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, get_args

from tts.build.errors import ConfigError
from tts.build.input_files import Unreadable, require_path
from tts.build.spec import ENDPOINT
from tts.scheduling import ScheduleName, SpeculationName


def _whole(least: int | None = None) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        return whole and (least is None or value >= least)

    return fits


def _number(least: float, most: float = math.inf) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        number = isinstance(value, Real) and not isinstance(value, bool)
        return number and math.isfinite(value) and least <= value <= most

    return fits


def _one_of(names: tuple[str, ...]) -> tuple[Callable[[Any], bool], str]:
    return lambda value: isinstance(value, str) and value in names, f"one of {', '.join(names)}"


def _path(value: Any) -> bool:
    try:
        require_path(os.fspath(value))
    except (TypeError, Unreadable):
        return False
    return isinstance(value, str | os.PathLike) and str(value) != ""


def _addresses(value: Any) -> bool:
    """Those of a replica on this machine, such as demo@2, included."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(
            isinstance(each, str) and re.fullmatch(rf"{ENDPOINT}|\S+@\d+", each) for each in value
        )
    )


_FUNCTION = callable, "a function"
_WANTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "seed": (_whole(), "a whole number"),
    "endpoints": (_addresses, "a list of HOST:PORT or unix:PATH"),
    "schedule": _one_of(get_args(ScheduleName)),
    "speculation": _one_of(get_args(SpeculationName)),
    "in_flight": (_whole(1), "a whole number above 0"),
    "priority": (_whole(), "a whole number"),
    "deadline_s": (_number(0), "a number of seconds"),
    "budget_tokens": (_whole(1), "a whole number above 0"),
    "on_step": _FUNCTION,
    "answer_of": _FUNCTION,
    "equal": _FUNCTION,
    "out": (_path, "the path of a folder"),
    "say": _FUNCTION,
    "n": (_whole(1), "a whole number above 0"),
    "max_tokens": (_whole(1), "a whole number above 0"),
    "temperature": (_number(0), "a number from 0 on"),
    "top_p": (_number(0, 1), "a number from 0 to 1"),
}
_MAY_BE_NONE = {
    "out",
    "say",
    "in_flight",
    "budget_tokens",
    "deadline_s",
    "on_step",
    "answer_of",
    "equal",
}


def check_arguments(**given: Any) -> None:
    """Raise ConfigError for the first argument that is not what its name asks for."""
    for name, value in given.items():
        fits, wanted = _WANTED[name]
        if name in _MAY_BE_NONE and value is None:
            continue
        if not fits(value):
            default = ", or None" if name in _MAY_BE_NONE else ""
            raise ConfigError(f"{name} is {value!r:.200}; it must be {wanted}{default}.")
