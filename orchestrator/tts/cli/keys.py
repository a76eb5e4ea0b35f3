"""`tts gateway keys`: who may use the gateways of this user."""

from __future__ import annotations

import re
import time
from dataclasses import fields
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.markup import escape

from tts.gateway.database import database_file
from tts.gateway.safety.keys import ApiKey, KeyStore
from tts.gateway.safety.limits import KeyLimits
from tts.reports.console import Sheet, consoles, say, table

from .json_output import print_json
from .options import JsonOption


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most requests.", show_default="no limit")
    ] = None,
    tokens_per_minute: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Most tokens: prompts, answers and searches together.",
            show_default="no limit",
        ),
    ] = None,
    concurrent_searches: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Most at a time.", show_default="no limit"),
    ] = None,
    tokens_per_day: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Budget of a day (UTC), for all gateways together.",
            show_default="no limit",
        ),
    ] = None,
    tokens_per_month: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Budget of a month.", show_default="no limit"),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="When it ends: after 30d or 12h, or with the day 2027-01-31 (UTC).",
            show_default="never",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A model that it may use, such as demo or 'demo:*'; several times.",
            show_default="all",
        ),
    ] = None,
) -> None:
    """Make a key and print it, this once: only its hash is kept."""
    limits = KeyLimits(
        requests_per_minute,
        tokens_per_minute,
        concurrent_searches,
        tokens_per_day,
        tokens_per_month,
    )
    ends = None if expires is None else _end(expires, time.time())
    key, record = _store().create(name, limits, expires=ends, models=tuple(model or ()))
    typer.echo(key)
    say(f"Key {record.id} ({name}). It is not kept and cannot be shown again: store it now.")
    say("Clients send it as Authorization: Bearer KEY (OPENAI_API_KEY). Gateways that run take it.")


def list_keys(as_json: JsonOption = False) -> None:
    """List keys with their limits, and who made and revoked them; the keys are not known."""
    keys = _store().all()
    if as_json:
        print_json(keys)
        return
    if not keys:
        say("There are no keys yet: tts gateway keys create NAME")
        return
    listed = table("id", "name", "created", "limits", "models", "state")
    for key in keys:
        listed.add_row(*_row(key))
    consoles()[0].print(Sheet(listed, keys=2))


def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The id of a key, or its name.")],
) -> None:
    """Make a key invalid. Running gateways refuse it within 0.2 s."""
    revoked = _store().revoke(key)
    say(f"Key {revoked.id} ({revoked.name}) is revoked. Requests that it has begun go on.")


def _store() -> KeyStore:
    return KeyStore(database_file())


def _row(key: ApiKey) -> list[str]:
    limits = [
        f"{value:,} {field.name.replace('_', ' ')}"
        for field in fields(key.limits)
        if (value := getattr(key.limits, field.name)) is not None
    ]
    return [
        key.id,
        escape(key.name),
        f"{_local(key.created)}{_by(key.created_by)}",
        "\n".join(limits) or "-",
        escape("\n".join(key.models)) or "all",
        _state(key),
    ]


def _state(key: ApiKey) -> str:
    if key.revoked is not None:
        return f"revoked {_local(key.revoked)}{_by(key.revoked_by)}"
    if key.expires is None:
        return "valid"
    expired = key.expires <= time.time()
    return f"{'expired' if expired else 'valid until'} {_local(key.expires)}"


def _by(user: str | None) -> str:
    return "" if user is None else f"\nby {escape(user)}"


def _end(when: str, now: float) -> float:
    """The Unix time that `30d`, `12h` or a day (to its end, UTC) names; raises BadParameter."""
    if match := re.fullmatch(r"([1-9][0-9]{0,4})([dh])", when):
        return now + int(match[1]) * {"d": 86_400, "h": 3_600}[match[2]]
    try:
        day = datetime.strptime(when, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise typer.BadParameter(
            f"{when!r:.40} is neither 30d, 12h nor a day such as 2027-01-31",
            param_hint="--expires",
        ) from None
    if (ends := day.timestamp() + 86_400) <= now:
        raise typer.BadParameter(f"{when} is over", param_hint="--expires")
    return ends


def _local(unix: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix))
