"""Results for programs: one JSON document on stdout, of a type in `documents`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import PurePath
from typing import Any

import typer

printed = False
"""Whether this command has printed its document: an error that follows prints none."""


@dataclass(frozen=True, kw_only=True)
class CommandError:
    """Why a command failed."""

    kind: str
    """The error (docs/reference/cli.md#exit-codes); UsageError: the command line is wrong."""
    message: str
    """A sentence: the mistake, and its place."""
    hint: str | None = None
    """What to do about it."""
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class ErrorDocument:
    """An error. A sentence on stderr says the same."""

    error: CommandError


def is_asked_for() -> bool:
    """Whether the command line has `--json`, whatever else is wrong with it."""
    words = sys.argv[1:]
    return "--json" in words[: words.index("--")] if "--" in words else "--json" in words


def print_json(document: object) -> None:
    """Print the one document of a command."""
    global printed
    printed = True
    # ASCII only, as no encoding of a terminal or a pipe can damage that
    typer.echo(json.dumps(plain(document), indent=2, allow_nan=False))


def plain(value: Any) -> Any:
    """Plain data of dataclasses, structs and collections; a number that is none becomes null.

    Every field is there, whatever its value, except those with `{"json": False}` as metadata.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | PurePath):
        return str(value)
    if is_dataclass(value):
        names = (each.name for each in fields(value) if each.metadata.get("json", True))
        return {name: plain(getattr(value, name)) for name in names}
    if struct_fields := getattr(value, "__struct_fields__", None):
        return {name: plain(getattr(value, name)) for name in struct_fields}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    raise TypeError(f"{type(value).__name__} has no place in a JSON document")
