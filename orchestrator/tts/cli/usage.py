"""`tts gateway usage`."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from tts.gateway.database import database_file
from tts.gateway.safety.keys import KeyStore
from tts.gateway.safety.usage import COUNTS, read_usage, totals
from tts.reports.console import Sheet, consoles, say, table

from .json_output import print_json
from .options import JsonOption


class By(StrEnum):
    """The subject of the table's rows."""

    key = "key"
    model = "model"
    day = "day"


DAY = "%Y-%m-%d"


def usage(
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since", metavar="DATE", formats=[DAY], help="First day.", show_default="this month's"
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option("--until", metavar="DATE", formats=[DAY], help="Last day.", show_default="-"),
    ] = None,
    by: Annotated[
        list[By] | None,
        typer.Option("--by", help="What to add up by; several times.", show_default="key"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add up the requests and tokens of each API key; days are UTC."""
    first = (since or datetime.now(UTC).replace(day=1)).strftime(DAY)
    last = until.strftime(DAY) if until else "9999-12-31"
    kinds = [each.value for each in By if each in (by or [By.key])]
    rows = totals(read_usage(database_file(), first, last), kinds)
    if as_json:
        print_json(rows)
        return
    if not rows:
        say(f"Nothing has been used since {first}.")
        return
    names = {key.id: key.name for key in KeyStore(database_file()).all()}
    sheet = table(*kinds, right=[name.replace("_", "\n") for name in COUNTS])
    for row in rows:
        cells = [_shown(kind, getattr(row, kind), names) for kind in kinds]
        sheet.add_row(*cells, *(f"{getattr(row, count):,}" for count in COUNTS))
    consoles()[0].print(Sheet(sheet, keys=len(kinds)))


def _shown(kind: str, value: str, names: dict[str, str]) -> str:
    if kind == "key" and value:
        return escape(f"{names.get(value, '?')} ({value})")
    return escape(value) or "-"
