"""Commands by the names that they had before; `options.OLD_NAMES_END` says until when."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import typer

from . import engines, keys, report, requests
from .command import Command
from .options import renamed


def add_to(app: typer.Typer) -> None:
    """Register every old name, hidden from help texts."""
    for old, new, command in (
        ("deploy", "render", engines.render),
        ("requests", "gateway requests", requests.requests),
        ("compare", "runs compare", report.compare),
        ("merge", "runs merge", report.merge),
        ("trace", "runs trace", report.trace),
    ):
        app.command(old, hidden=True, cls=Command)(_with_notice(command, old, new))
    app.add_typer(
        keys.app, name="keys", hidden=True, callback=lambda: renamed("tts keys", "tts gateway keys")
    )


def _with_notice(command: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    @functools.wraps(command)
    def noticed(*arguments: Any, **options: Any) -> Any:
        renamed(f"tts {old}", f"tts {new}")
        return command(*arguments, **options)

    return noticed
