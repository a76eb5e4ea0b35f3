"""Strategies and datasets of other packages, by their entry points.

An entry point is loaded when its name is asked for, so that a broken one disturbs only those who
use it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from tts.base.errors import ConfigError


@dataclass(frozen=True)
class PluginGroup:
    """The entry points of a group; `kind` is what each of them gives, as errors call it."""

    group: str
    kind: str

    def names(self) -> list[str]:
        """The names that plug-ins have, sorted; none is loaded."""
        return sorted({entry.name for entry in _installed(self.group)})

    def find(self, name: str) -> EntryPoint | None:
        """The plug-in of that name, which is not loaded; ConfigError if there are several."""
        matches = [entry for entry in _installed(self.group) if entry.name == name]
        if len(matches) > 1:
            raise ConfigError(
                f"Several packages have a {self.kind} {name!r}: "
                f"{', '.join(map(package_of, matches))}.",
                hint="Uninstall all of them but one.",
            )
        return matches[0] if matches else None

    def load(self, plugin: EntryPoint) -> Any:
        """The object that a plug-in refers to; raises ConfigError if it cannot be imported."""
        try:
            return plugin.load()
        except Exception as error:
            raise self.broken(plugin, error) from error

    def broken(self, plugin: EntryPoint, error: Exception) -> ConfigError:
        """The error to raise for a plug-in that raised one."""
        return ConfigError(
            f"{self.describe(plugin)} cannot be loaded: {type(error).__name__}: {error}",
            hint=f"Fix or uninstall {package_of(plugin)}.",
        )

    def describe(self, plugin: EntryPoint) -> str:
        """The kind of plug-in and its origin, as the beginning of a sentence."""
        return f"The {self.kind} {plugin.name!r} of package {package_of(plugin)} ({plugin.value})"


def _installed(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group.

    To read them takes milliseconds: it is done anew where a folder of packages has changed.
    """
    return _read(group, tuple((folder, _changed(Path(folder))) for folder in sys.path))


@lru_cache(maxsize=16)
def _read(group: str, folders: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _changed(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def package_of(plugin: EntryPoint) -> str:
    """The name of the distribution that a plug-in comes with."""
    return plugin.dist.name if plugin.dist else "unknown"
