"""`tts gateway requests`: what gateways have been asked."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import compress
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import RenderableType
from rich.markup import escape

from tts.gateway.database import database_file
from tts.gateway.observability.record import ServedRequest, as_json_lines, read_requests
from tts.gateway.safety.keys import KeyStore
from tts.reports.console import Sheet, consoles, table

from .completion import deployments
from .documents.gateway import LoggedRequest
from .json_output import print_json
from .options import JsonOption, usable

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def requests(
    deployment: Annotated[
        str | None,
        typer.Argument(
            metavar="DEPLOYMENT",
            autocompletion=deployments,
            help="The name of the deployment.",
            show_default="all",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            callback=usable,
            metavar="FILE",
            help="A database elsewhere, such as a copy.",
            show_default="gateway/gateway.db in TTS_HOME",
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="The latest N.", show_default="20 in a table, or all"
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only requests from this time on: 2026-01-31, 2026-01-31T12:00, 90s, 15m, 2h, 7d.",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only requests before this time.")
    ] = None,
    form: Annotated[
        Literal["table", "jsonl"],
        typer.Option("--format", help="A table to read, or everything as JSON lines."),
    ] = "table",
    as_json: JsonOption = False,
) -> None:
    """Show and export the requests that gateways have had, also while they run."""
    if as_json and form != "table":
        raise typer.BadParameter("goes without --format", param_hint="--json")
    now = time.time()
    if last is None and form == "table" and not as_json:
        last = 20
    file = file or database_file()
    records = read_requests(
        file,
        deployment,
        since=_time(since, now, "--since"),
        until=_time(until, now, "--until"),
        last=last,
    )
    if as_json:
        print_json([LoggedRequest.of(record) for record in records])
    elif form == "table":
        names = {key.id: key.name for key in KeyStore(file).all()}
        consoles()[0].print(_table(records, names))
    else:
        for line in as_json_lines(records):
            typer.echo(line)


def _time(text: str | None, now: float, option: str) -> float | None:
    """Unix time of a date, or of so long ago."""
    if text is None:
        return None
    if (unit := _UNITS.get(text[-1:])) and text[:-1].replace(".", "", 1).isdecimal():
        return now - float(text[:-1]) * unit
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise typer.BadParameter(
            f"{text!r:.60} is no date such as 2026-01-31T12:00, and no time such as 15m.",
            param_hint=option,
        ) from None


def _table(records: Iterable[ServedRequest], names: Mapping[str, str]) -> RenderableType:
    """The columns that have anything to say; `names` are those of the keys, by their ids."""
    words = ["time", "id", "model", "outcome", "key", "client", "replica"]
    tokens = [f"{kind}\ntokens" for kind in ("prompt", "answer", "search", "verifier")]
    times = ["gateway\nms", "first\nbyte s", "last\nbyte s"]
    rows = [_row(record, names) for record in records]
    filled = [
        any(row[place] != "-" for row in rows) for place in range(len(words + tokens + times))
    ]
    sheet = table(
        *compress(words, filled), right=list(compress(tokens + times, filled[len(words) :]))
    )
    for row in rows:
        sheet.add_row(*compress(row, filled))
    return Sheet(sheet, keys=2)


def _row(record: ServedRequest, names: Mapping[str, str]) -> list[str]:
    own = record.own_latency_s()
    outcome = record.outcome if record.outcome == "ok" else f"{record.outcome} {record.status}"
    return [
        time.strftime("%m-%d %H:%M:%S", time.localtime(record.time)),
        record.id,
        escape(record.model) or record.endpoint,
        outcome,
        escape(names.get(record.key or "", record.key or "-")),
        escape(record.client or "-"),
        escape(record.replica or "-"),
        *(
            f"{tokens:,}" if tokens else "-"
            for tokens in (
                record.prompt_tokens,
                record.answer_tokens,
                record.search_tokens,
                record.verifier_tokens,
            )
        ),
        "-" if own is None else f"{own * 1000:.2f}",
        "-" if record.t5 is None else f"{record.t5:.3f}",
        "-" if record.t6 is None else f"{record.t6:.3f}",
    ]
