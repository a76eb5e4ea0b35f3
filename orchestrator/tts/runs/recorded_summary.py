"""summary.json as it is read back: what its readers count on is checked once, here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from tts.build.errors import RunError

from .checks import read_summary
from .folder import SUMMARY, Json

_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
_Number = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Rule = Literal["best", "weighted", "majority"]


class _InFlight(msgspec.Struct):
    generator: _Number | None
    verifier: _Number | None


class _Latency(msgspec.Struct):
    median: _Number | None
    p95: _Number | None


class _Speculation(msgspec.Struct):
    sent: _Count
    used: _Count
    cancelled: dict[str, _Count]
    hit_rate: _Share | None

    def __post_init__(self) -> None:
        if self.sent and self.hit_rate is None:
            raise ValueError("`hit_rate` is null, although expansions were sent")


class _Waste(msgspec.Struct):
    unused_tokens: _Count
    cancelled_tokens_estimated: _Number
    share: _Share | None


class _Batches(msgspec.Struct):
    batches: Annotated[int, msgspec.Meta(ge=1, le=10**15)]
    tokens: _Count


class _Level(msgspec.Struct):
    problems: _Count
    accuracy: _Share | None


class _Replay(msgspec.Struct):
    source: str
    text: str
    tree_digest: str = ""
    digest: str | None = None


class _Summary(msgspec.Struct, kw_only=True):
    """The fields that every summary has; those with a default are missing in older ones."""

    problems: _Count
    accuracy: _Share | None
    wall_s: _Number
    problems_per_s: _Number | None
    generated_tokens: _Count
    tokens_per_s: _Number | None
    generator_calls: _Count = 0
    verifier_calls: _Count
    mean_in_flight: _InFlight
    latency_s: _Latency | None = None
    idle_s: dict[Literal["generator", "verifier"], dict[str, _Number]] | None = None
    speculation: _Speculation | None = None
    waste: _Waste | None = None
    verifier_batches: dict[str, _Batches] | None = None
    strategy: str
    schedule: str
    seed: int
    n: _Count | None
    vote: _Rule
    parameters: dict[str, bool | int | float | str | dict[str, Any] | None]
    context: int | None = None
    deployment: str
    dataset: str
    accuracy_by_rule: dict[_Rule, _Share | None]
    pass_at_n: _Share | None
    accuracy_by_level: dict[str, _Level]
    undecided: _Count
    tree_digest: str
    replay: _Replay | None = None
    limits: dict[str, _Number] | None = None
    limited: dict[Literal["tokens", "deadline"], _Count] = {}
    servers: dict[str, dict[str, _Count]] | None = None

    def __post_init__(self) -> None:
        later = (self.waste, self.latency_s, self.speculation, self.verifier_batches)
        if len({part is None for part in later}) > 1:  # they came with one version
            raise ValueError(
                "one of `waste`, `latency_s`, `speculation` and `verifier_batches` is missing"
            )
        if self.idle_s is not None and len(self.idle_s) < 2:
            raise ValueError("`idle_s` lacks an engine")


def read_whole_summary(folder: Path) -> Json:
    """The summary of a finished run, with everything that tables are made of; raises RunError."""
    summary = read_summary(folder)
    try:
        msgspec.convert(summary, _Summary)
    except msgspec.ValidationError as error:
        raise RunError(
            f"{folder / SUMMARY} is not the summary of a run: {error}.",
            hint="It was damaged. It is derived from the log: remove it, and the run writes it "
            f"again when it is continued: tts bench --resume {folder}",
        ) from error
    return summary
