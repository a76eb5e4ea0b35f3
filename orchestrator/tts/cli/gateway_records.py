"""What gateways keep of this user: `tts gateway keys`, `requests` and `usage`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from itertools import compress

import typer
from rich.console import RenderableType
from rich.markup import escape

from tts.gateway.database import database_file
from tts.gateway.observability.record import ServedRequest, as_json_lines, read_requests
from tts.gateway.safety.keys import ApiKey, KeyStore
from tts.gateway.safety.limits import KeyLimits
from tts.gateway.safety.usage import COUNTS, read_usage, totals
from tts.reports.console import Sheet, consoles, say, table

from .json_output import print_json
from .options.gateway import DAY, By, CreateKey, ListKeys, Requests, RevokeKey, Usage


class LoggedRequest(ServedRequest, kw_only=True):
    """A request that a gateway has had.
    Its t1 to t6 are seconds since it arrived, when it was admitted, sent to an engine, first
    answered, past the filters, and when the first and the last byte were sent.
    """

    gateway_latency_s: float | None = None
    """What the gateway itself added to the time to the first byte."""

    @classmethod
    def of(cls, record: ServedRequest) -> LoggedRequest:
        """A request with values derived from its times."""
        values = {name: getattr(record, name) for name in ServedRequest.__struct_fields__}
        return cls(**values, gateway_latency_s=record.own_latency_s())


def create(options: CreateKey) -> None:
    """Run `tts gateway keys create`."""
    limits = KeyLimits(
        options.requests_per_minute,
        options.tokens_per_minute,
        options.concurrent_searches,
        options.tokens_per_day,
        options.tokens_per_month,
    )
    ends = None if options.expires is None else _end(options.expires, time.time())
    key, record = _store().create(
        options.name, limits, expires=ends, models=tuple(options.model or ())
    )
    typer.echo(key)
    say(
        f"Key {record.id} ({options.name}). It is not kept and cannot be shown again: store it now."
    )
    say("Clients send it as Authorization: Bearer KEY (OPENAI_API_KEY). Gateways that run take it.")


def list_keys(options: ListKeys) -> None:
    """Run `tts gateway keys list`."""
    keys = _store().all()
    if options.as_json:
        print_json(keys)
        return
    if not keys:
        say("There are no keys yet: tts gateway keys create NAME")
        return
    listed = table("id", "name", "created", "limits", "models", "state")
    for key in keys:
        listed.add_row(*_key_row(key))
    consoles()[0].print(Sheet(listed, keys=2))


def revoke(options: RevokeKey) -> None:
    """Run `tts gateway keys revoke`."""
    revoked = _store().revoke(options.key)
    say(f"Key {revoked.id} ({revoked.name}) is revoked. Requests that it has begun go on.")


def _store() -> KeyStore:
    return KeyStore(database_file())


def _key_row(key: ApiKey) -> list[str]:
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


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def requests(options: Requests) -> None:
    """Run `tts gateway requests`."""
    file = options.file
    last = options.last
    if options.as_json and options.form != "table":
        raise typer.BadParameter("goes without --format", param_hint="--json")
    now = time.time()
    if last is None and options.form == "table" and not options.as_json:
        last = 20
    file = file or database_file()
    records = read_requests(
        file,
        options.deployment,
        since=_time(options.since, now, "--since"),
        until=_time(options.until, now, "--until"),
        last=last,
    )
    if options.as_json:
        print_json([LoggedRequest.of(record) for record in records])
    elif options.form == "table":
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
    rows = [_request_row(record, names) for record in records]
    filled = [
        any(row[place] != "-" for row in rows) for place in range(len(words + tokens + times))
    ]
    sheet = table(
        *compress(words, filled), right=list(compress(tokens + times, filled[len(words) :]))
    )
    for row in rows:
        sheet.add_row(*compress(row, filled))
    return Sheet(sheet, keys=2)


def _request_row(record: ServedRequest, names: Mapping[str, str]) -> list[str]:
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


def usage(options: Usage) -> None:
    """Run `tts gateway usage`."""
    first = (options.since or datetime.now(UTC).replace(day=1)).strftime(DAY)
    last = options.until.strftime(DAY) if options.until else "9999-12-31"
    kinds = [each.value for each in By if each in (options.by or [By.key])]
    rows = totals(read_usage(database_file(), first, last), kinds)
    if options.as_json:
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
