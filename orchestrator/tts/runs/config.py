"""What run.json and group.json must say for a run to be continued, and the check that they do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from .checks import check_run
from .folder import CONFIG, GROUP, Json, damaged, read_config
from .groups import Member, read_group


class _Replay(msgspec.Struct):
    source: str
    text: Literal["recorded", "made up"]


class _Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    budget_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    deadline_s: Annotated[float, msgspec.Meta(ge=0)] | None = None


class _Shared(msgspec.Struct):
    """The fields that a run and a group both keep; those with a default are missing in old ones."""

    deployment: str
    deployment_source: str
    deployment_digest: str
    dataset: str
    limit: int | None
    seed: int
    schedule: str
    problem_ids: list[str]
    prompting: dict[str, dict[str, Any]] = {}
    context: int | None = None
    speculation: str = "auto"
    in_flight: int | None = None
    replay: _Replay | None = None
    functions: dict[str, str] = {}
    dataset_seed: int | None = None
    columns: dict[str, str] = {}
    answers: str | None = None
    per_level: int | None = None
    shard: str | None = None
    limits: _Limits = _Limits()


class _Run(_Shared, kw_only=True):
    strategy: str
    vote: str
    parameters: dict[str, Any]


class _Group(_Shared, kw_only=True):
    runs: Annotated[list[Member], msgspec.Meta(min_length=1)]


def read_whole_config(folder: Path, *, going_on: bool = False) -> Json:
    """A run's configuration, with every field that continuing it needs; raises RunError.

    The folder's parts are checked against one another, unless the run is `going_on`: then its log
    is read as it grows, and its summary made anew.
    """
    config = read_config(folder)
    if not going_on:
        check_run(folder)
    _check(config, _Run, folder / CONFIG)
    return config


def read_whole_group(folder: Path) -> tuple[Json, list[Member]]:
    """Likewise of a group of runs, with its members."""
    config, members = read_group(folder)
    _check(config, _Group, folder / GROUP)
    return config, members


def _check(config: Json, kind: type[_Shared], file: Path) -> None:
    try:
        msgspec.convert(config, kind)
    except msgspec.ValidationError as error:
        raise damaged(file, error) from error
