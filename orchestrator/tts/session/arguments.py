"""Arguments of the Python API: shared options, and checks before anything is sent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_args

import msgspec
from msgspec import Meta

from tts.base.choices import ServerKind
from tts.base.errors import ConfigError
from tts.base.input_files import Unreadable, require_path
from tts.build.spec import ENDPOINT
from tts.endpoints.base import Generator, Verifier
from tts.endpoints.functions import RewardFunction, TextFunction
from tts.runs.config import Limits, RunConfig
from tts.scheduling import ScheduleName, SpeculationName

from .functions import AnswerFunction, EqualFunction
from .result import Step
from .strategy import StrategyLike


class OpenOptions(TypedDict, total=False):
    """The options that `Session.open` and `open_async` share; `open` says what they mean."""

    generator: Generator | TextFunction | None
    verifier: Verifier | RewardFunction | None
    endpoints: Sequence[str] | None
    server: ServerKind | None
    say: Callable[[str], None] | None


class StrategyParameters(TypedDict, total=False):
    """The parameters of the built-in strategies (docs/reference/strategies.md)."""

    n: int | None
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    max_tokens: int
    agg_strategy: Literal["last", "min", "prod", "mean"]
    answer_regex: str | None
    answer_schema: str | None
    thinking_budget: int | None
    scores: Literal["calibrated", "raw"]
    scored: bool
    warm_up: int
    keep: float
    window: int
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


class SampleOptions(TypedDict, total=False):
    """The options of `generate`; `Session.generate` says what they mean."""

    n: int
    max_tokens: int
    temperature: float
    top_p: float
    seed: int


_OPTIONS = SolveOptions.__annotations__.keys() - StrategyParameters.__annotations__.keys()
_CONFIGURED = ("seed", "schedule", "speculation")


_Count = Annotated[int, Meta(ge=1)]
_Positive = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
_KINDS: dict[str, tuple[Any, str]] = {
    "seed": (int, "a whole number"),
    # the name of this machine's server, such as demo@local, is an address as well
    "endpoints": (
        list[Annotated[str, Meta(pattern=rf"^(?:{ENDPOINT}|\S+@local)\Z")]],
        "a list of HOST:PORT or unix:PATH",
    ),
    "server": (ServerKind | None, f"one of {', '.join(get_args(ServerKind))}, or None"),
    "parameters": (dict[str, Any], "a mapping of names"),
    "schedule": (ScheduleName, f"one of {', '.join(get_args(ScheduleName))}"),
    "speculation": (SpeculationName, f"one of {', '.join(get_args(SpeculationName))}"),
    "in_flight": (_Count | None, "a whole number above 0, or None"),
    "priority": (int, "a whole number"),
    "deadline_s": (_Positive | None, "a number of seconds, or None"),
    "budget_tokens": (_Count | None, "a whole number above 0, or None"),
    "on_step": (Callable | None, "a function, or None"),
    "answer_of": (Callable | None, "a function, or None"),
    "equal": (Callable | None, "a function, or None"),
    "say": (Callable | None, "a function, or None"),
    "out": (Annotated[str, Meta(min_length=1)] | None, "the path of a folder, or None"),
    "n": (_Count, "a whole number above 0"),
    "max_tokens": (_Count, "a whole number above 0"),
    "temperature": (_Positive, "a number from 0 on"),
    "top_p": (Annotated[float, Meta(ge=0, le=1)], "a number from 0 to 1"),
}
"""The kind of each argument, as msgspec checks it, and as an error names it."""


def check_arguments(**arguments: Any) -> None:
    """Raise ConfigError for the first argument whose value is not valid."""
    for name, value in arguments.items():
        kind, rule = _KINDS[name]
        try:
            plain = msgspec.convert(str(value) if isinstance(value, Path) else value, kind)
            if name == "out" and plain is not None:
                require_path(plain)
        except (msgspec.ValidationError, Unreadable):
            raise ConfigError(f"{name} is {value!r:.200}; it must be {rule}.") from None


def config_of(options: SolveOptions, source: str, in_flight: int | None = None) -> RunConfig:
    """The configuration of a call's options on the deployment `source`; raises ConfigError."""
    values: dict[str, Any] = dict(options)
    settings = {
        name: value for name, value in values.items() if name in _KINDS and name in _OPTIONS
    }
    check_arguments(**settings, in_flight=in_flight)
    parameters = {name: value for name, value in values.items() if name not in _OPTIONS}
    if parameters.get("n", 1) is None:
        del parameters["n"]
    return RunConfig(
        deployment_source=source,
        parameters={**parameters, **values.get("parameters", {})},
        in_flight=in_flight,
        limits=Limits(**{name: values.get(name) for name in Limits.__struct_fields__}),
        **{name: values[name] for name in _CONFIGURED if name in values},
    )
