"""`tts gateway keys`: who may use the gateways of this user."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from .command import Command, Group

if TYPE_CHECKING:
    from tts.gateway.safety import ApiKey, KeyStore

app = typer.Typer(
    cls=Group,
    help="Make, list and revoke the API keys of gateways (docs/guides/gateway.md).",
    no_args_is_help=True,
)


@app.command(cls=Command)
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
) -> None:
    """Make a key and print it, this once: only its hash is kept."""
    from tts.gateway.safety import KeyLimits
    from tts.reports.console import say

    limits = KeyLimits(requests_per_minute, tokens_per_minute, concurrent_searches)
    key, made = _store().create(name, limits)
    typer.echo(key)
    say(f"Key {made.id} ({name}). It is not kept and cannot be shown again: store it now.")
    say("Clients send it as Authorization: Bearer KEY (OPENAI_API_KEY). Gateways that run take it.")


@app.command("list", cls=Command)
def list_keys() -> None:
    """List keys with their limits; the keys themselves are not known."""
    from rich import box
    from rich.table import Table

    from tts.reports.console import consoles, say

    keys = _store().all()
    if not keys:
        say("There are no keys yet: tts gateway keys create NAME")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("id", "name", "created"):
        table.add_column(heading, no_wrap=heading != "name")
    for heading in ("requests\nper minute", "tokens\nper minute", "searches\nat a time"):
        table.add_column(heading, justify="right")
    table.add_column("state", no_wrap=True)
    for key in keys:
        table.add_row(*_row(key))
    consoles()[0].print(table)


@app.command(cls=Command)
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The id of a key, or its name.")],
) -> None:
    """Make a key invalid. Gateways that run refuse it within half a second."""
    from tts.reports.console import say

    revoked = _store().revoke(key)
    say(f"Key {revoked.id} ({revoked.name}) is revoked. Requests that it has begun go on.")


def _store() -> KeyStore:
    from tts.gateway.safety import KeyStore, keys_file

    return KeyStore(keys_file())


def _row(key: ApiKey) -> list[str]:
    limits = key.limits
    return [
        key.id,
        escape(key.name),
        _local(key.created),
        *(
            "-" if limit is None else f"{limit:,}"
            for limit in (
                limits.requests_per_minute,
                limits.tokens_per_minute,
                limits.concurrent_searches,
            )
        ),
        "valid" if key.revoked is None else f"revoked {_local(key.revoked)}",
    ]


def _local(unix: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix))
