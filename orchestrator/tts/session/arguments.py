"""Arguments of the Python API: shared options, and checks before anything is sent."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from tts.build.errors import ConfigError
from tts.build.input_files import Unreadable, require_path
from tts.build.server_kinds import ServerKind
from tts.build.spec import ENDPOINT
from tts.runs.config import Limits, RunConfig
from tts.scheduling import ScheduleName, SpeculationName

from .functions import AnswerFunction, EqualFunction
from .result import Step
from .strategy import StrategyLike


class StrategyParameters(TypedDict, total=False):
    """The parameters of the built-in strategies (docs/reference/strategies.md)."""

    n: int | None
    temperature: float
    top_p: float
    max_tokens: int
    agg_strategy: Literal["last", "min", "prod", "mean"]
    answer_regex: str | None
    answer_schema: str | None
    scored: bool
    batch: int
    threshold: float
    num_iterations: int
    finish: Literal["depth", "eos"]
    beam_width: int
    filter_duplicates: bool
    sort_completed: bool
    softmax_temperature: float
    weight_temperature: float
    ess_threshold: float
    width: int
    exploration: float
    parallel: int


class SolveOptions(StrategyParameters, total=False):
    """The options that `solve` and `solve_many` share; `Session.solve` says what they mean.

    The parameters of a strategy stand beside them; those of an installed strategy, which is not
    known here, may be given as `parameters`.
    """

    strategy: StrategyLike
    parameters: Mapping[str, Any]
    seed: int
    schedule: ScheduleName
    speculation: SpeculationName
    budget_tokens: int | None
    deadline_s: float | None
    on_step: Callable[[Step], None] | None
    answer_of: AnswerFunction | None
    equal: EqualFunction | None
    out: str | Path | None


_OPTIONS = SolveOptions.__annotations__.keys() - StrategyParameters.__annotations__.keys()
_CONFIGURED = ("seed", "schedule", "speculation")


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
    """The name of this machine's server, such as demo@local, is one as well."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(
            isinstance(each, str) and re.fullmatch(rf"{ENDPOINT}|\S+@local", each) for each in value
        )
    )


_FUNCTION = callable, "a function"
_NAMES = (
    lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
    "a mapping of names",
)
_WANTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "seed": (_whole(), "a whole number"),
    "endpoints": (_addresses, "a list of HOST:PORT or unix:PATH"),
    "server": _one_of(get_args(ServerKind)),
    "parameters": _NAMES,
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
    "server",
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
    """Raise ConfigError for the first argument whose value is not valid."""
    for name, value in given.items():
        fits, wanted = _WANTED[name]
        if name in _MAY_BE_NONE and value is None:
            continue
        if not fits(value):
            default = ", or None" if name in _MAY_BE_NONE else ""
            raise ConfigError(f"{name} is {value!r:.200}; it must be {wanted}{default}.")


def config_of(options: SolveOptions, source: str, in_flight: int | None = None) -> RunConfig:
    """The run configuration of a call's options, without the strategy; raises ConfigError.

    `source` is the deployment as the program named it.
    """
    given: dict[str, Any] = dict(options)
    named = {name: value for name, value in given.items() if name in _WANTED and name in _OPTIONS}
    check_arguments(**named, in_flight=in_flight)
    parameters = {name: value for name, value in given.items() if name not in _OPTIONS}
    if parameters.get("n", 1) is None:
        del parameters["n"]
    return RunConfig(
        deployment_source=source,
        parameters={**parameters, **given.get("parameters", {})},
        in_flight=in_flight,
        limits=Limits(**{name: given.get(name) for name in Limits.__struct_fields__}),
        **{name: given[name] for name in _CONFIGURED if name in given},
    )
