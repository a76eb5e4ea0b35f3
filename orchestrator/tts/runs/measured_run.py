"""A run's folder with its measures; or each of a group's runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tts.build.user_paths import is_there

from .config import RunConfig, read_run_config
from .folder import EVENTS, has_finished
from .groups import is_group, read_members
from .log import read_events
from .measures import Measures


@dataclass(frozen=True)
class MeasuredRun:
    """A run, finished or not."""

    folder: Path
    config: RunConfig
    """The configuration of the run."""
    measures: Measures
    """What its log adds up to, as far as it goes."""

    @classmethod
    def load(cls, folder: Path) -> MeasuredRun:
        """The run in `folder`; raises RunError if it holds none, or a damaged log."""
        return cls(folder, read_run_config(folder), Measures.of(read_events(folder)))

    @property
    def rule(self) -> str:
        """The vote that chooses its answers."""
        return self.config.vote

    @property
    def accuracy(self) -> float | None:
        """Share of the solved problems with a reference that are right; None without any."""
        return self.measures.accuracy(self.rule)


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
