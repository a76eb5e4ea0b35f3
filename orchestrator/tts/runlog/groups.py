"""A group: several runs of one comparison, a folder each, in one folder with `group.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tts.search import SearchConfig
from tts.strategies.catalog import find_strategy

from .log import CONFIG, GROUP, SUMMARY, Event, cannot_write, create_folder, read_json, write_json

COMPARISON = "comparison.json"


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


def members_of(configs: Mapping[str, SearchConfig]) -> list[Member]:
    """The runs that strategies with these parameters need: one for all that search the same."""
    shared: dict[tuple[type[SearchConfig], SearchConfig], list[str]] = {}
    for name, config in configs.items():
        shared.setdefault((type(config), config), []).append(name)
    return [
        Member(
            names[0],
            {name: find_strategy(name).vote for name in names},
            config.model_dump(mode="json"),
        )
        for (_, config), names in shared.items()
    ]


def group_config(run_config: Event, members: list[Member]) -> Event:
    """What `group.json` keeps, enough to resume: what the runs share, and each run.

    `run_config` is what any one of the runs keeps.
    """
    own = ("strategy", "vote", "parameters")
    shared = {name: value for name, value in run_config.items() if name not in own}
    return {**shared, "runs": [asdict(member) for member in members]}


def create_group(folder: Path, config: Event) -> None:
    """Make a group folder; it must hold neither a run nor a group yet. Raises RunError."""
    create_folder(folder, GROUP, config)


def is_group(folder: Path) -> bool:
    """Whether a folder holds a group."""
    return (folder / GROUP).exists()


def read_group(folder: Path) -> tuple[Event, list[Member]]:
    """What a group was asked to do, and its runs; raises RunError."""
    config = read_json(folder / GROUP, f"{folder} holds no group of runs")
    return config, [Member(**run) for run in config["runs"]]


def has_begun(folder: Path) -> bool:
    """Whether a run folder holds a run."""
    return (folder / CONFIG).exists()


def has_finished(folder: Path) -> bool:
    """Whether a run folder holds a run that came to its end."""
    return (folder / SUMMARY).exists()


def write_comparison(folder: Path, data: Event) -> None:
    """Keep the numbers of a group's tables; raises RunError."""
    try:
        write_json(folder / COMPARISON, data)
    except OSError as error:
        raise cannot_write(folder, error) from error
