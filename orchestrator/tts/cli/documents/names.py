"""What `tts list --json` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ListedDeployment:
    """A bundled deployment."""

    name: str
    target: str
    """The target that its engines are compiled for."""
    gpu: str | None
    """The kind of GPU; null for CPUs and for servers that run already."""
    built: bool | None
    """Whether an engine of it is built here; null where nothing is built."""
    about: str


@dataclass(frozen=True, kw_only=True)
class ListedStrategy:
    """A strategy."""

    name: str
    about: str
    parameters: dict[str, Any]
    """Those that can be set, with their defaults."""


@dataclass(frozen=True, kw_only=True)
class ListedDataset:
    """A dataset, or a way to name one."""

    name: str
    problems: int | None
    here: bool | None
    """Whether it needs no download."""
    about: str


Listed = ListedDeployment | ListedStrategy | ListedDataset
