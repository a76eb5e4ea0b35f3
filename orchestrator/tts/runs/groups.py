"""A group of runs: several runs that are compared, a folder each, in one folder with `group.json`.

This is only the format of the folder: why runs are grouped is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from tts.base.errors import RunDamaged
from tts.base.user_paths import is_there

from .config import CIRCUMSTANCES, RunConfig, parse_config
from .folder import (
    EVENTS,
    GROUP,
    Json,
    create_folder,
    damaged,
    has_begun,
    has_finished,
    read_config,
    read_json,
    write_json,
    writing,
)

COMPARISON = "comparison.json"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_OWN = ("strategy", "vote", "parameters")
"""The fields of a run that those of a group do not share."""


@dataclass(frozen=True)
class Member:
    """One run of a group: its folder's name, its parameters, and who shares it.

    `votes` maps the strategies that are this very search to their votes; the first one is the one
    that the run is made as.
    """

    folder: str
    votes: dict[str, str]
    parameters: dict[str, Any]

    @property
    def strategy(self) -> str:
        """The strategy that the run is made as."""
        return next(iter(self.votes))


@dataclass(frozen=True)
class GroupConfig:
    """The configuration of a group of runs: group.json."""

    shared: RunConfig
    """The configuration of all runs; its search is that of the first member."""
    members: list[Member]

    def to_json(self) -> Json:
        """The content of group.json."""
        return group_config(self.shared.to_json(), self.members)


def group_config(run_config: Json, members: list[Member]) -> Json:
    """What `group.json` keeps, enough to resume: what the runs share, and each run.

    `run_config` is what any one of the runs keeps.
    """
    shared = {name: value for name, value in run_config.items() if name not in _OWN}
    return {**shared, "runs": [asdict(member) for member in members]}


def create_group(folder: Path, config: Json) -> None:
    """Make a group folder; it must hold neither a run nor a group yet. Raises RunError."""
    create_folder(folder, GROUP, config)


def is_group(folder: Path) -> bool:
    """Whether a folder holds a group."""
    return is_there(folder / GROUP)


def read_group(folder: Path) -> tuple[Json, list[Member]]:
    """The configuration of a group, and its runs; raises RunError."""
    config = read_json(folder / GROUP, f"{folder} holds no group of runs")
    try:
        members = msgspec.convert(config.get("runs"), list[Member])
    except msgspec.ValidationError as error:
        raise damaged(folder / GROUP, f"its runs: {error}") from error
    for member in members:
        if not _PLAIN_NAME.fullmatch(member.folder):
            raise damaged(folder / GROUP, f"{member.folder!r:.100} is no plain name of a run in it")
    return config, members


def read_whole_group(folder: Path) -> GroupConfig:
    """A group's configuration, with every field that continuing it needs; raises RunError."""
    file = folder / GROUP
    config, members = read_group(folder)
    shared = {name: value for name, value in config.items() if name != "runs"}
    first = (
        {"strategy": members[0].strategy, "parameters": members[0].parameters} if members else {}
    )
    whole = parse_config(shared | first, file, lacks=_OWN)
    if not members:
        raise damaged(file, "Expected `array` of length >= 1 - at `$.runs`")
    return GroupConfig(whole, members)


def read_members(folder: Path) -> list[Member]:
    """The runs of a group, checked to be those that group.json names; raises RunError.

    Raises RunDamaged for a run of another group, or of another of its searches, in a folder.
    """
    config, members = read_group(folder)
    shared = {name: value for name, value in config.items() if name != "runs"}
    for member in members:
        if not has_begun(folder / member.folder):
            continue
        expected = {**shared, "strategy": member.strategy, "parameters": member.parameters}
        actual = read_config(folder / member.folder)
        for name, value in expected.items():
            # a strategy that takes a budget has the one to which the others' n is fitted;
            # each has its own strategy's function, whose file may have changed before it was begun
            if (
                name not in (*CIRCUMSTANCES, "limits", "sources", "functions")
                and actual.get(name) != value
            ):
                raise RunDamaged(
                    f"{folder / member.folder} is not the run that {folder / GROUP} names: its "
                    f"{name} is {actual.get(name)!r:.200} instead of {value!r:.200}.",
                    hint="Bring the right folder back.",
                )
    return members


def expand_groups(folders: Iterable[Path]) -> list[Path]:
    """The folders of runs, each group replaced by its begun runs; raises RunError."""
    runs: list[Path] = []
    for folder in folders:
        if is_group(folder):
            members = (folder / member.folder for member in read_members(folder))
            runs += [
                member for member in members if is_there(member / EVENTS) or has_finished(member)
            ]
        else:
            runs.append(folder)
    return runs


def write_comparison(folder: Path, data: Json) -> None:
    """Keep the numbers of a group's tables; raises RunError."""
    with writing(folder):
        write_json(folder / COMPARISON, data)
