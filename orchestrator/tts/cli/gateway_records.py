"""What gateways keep of this user: `tts gateway keys`, `requests`, `usage` and `backup`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from itertools import compress
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import RenderableType
from rich.markup import escape
from typer import BadParameter

from tts.gateway.database import backup as copy_database
from tts.gateway.database import database, database_file, read_only
from tts.gateway.observability.record import ServedRequest, as_json_lines, read_requests
from tts.gateway.safety.keys import ApiKey, KeyStore, key_names, read_secret
from tts.gateway.safety.limits import KeyLimits
from tts.gateway.safety.usage import COUNTS, read_usage, totals
from tts.reports.console import Sheet, consoles, say, table
from tts.strategies.catalog import strategy_names

from .json_output import print_json
from .options.gateway import (
    Backup,
    By,
    CreateKey,
    ListKeys,
    Requests,
    RevokeKey,
    RotateKey,
    SetKey,
    Usage,
)

T = TypeVar("T")
_LIMITS = tuple(field.name for field in fields(KeyLimits))


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
    limits = {name: getattr(options, name) or None for name in _LIMITS}
    key, record = _store().create(
        options.name,
        KeyLimits(**limits),
        expires=_end(options.expires, time.time()),
        models=_models(options.model or []),
        note=options.note or None,
        secret=read_secret(options.key_file) if options.key_file else None,
    )
    _print_key(key, record, options.key_file)
    say("Clients send it as Authorization: Bearer KEY (OPENAI_API_KEY).")
    say("Running gateways accept it at once.")
    if options.model:
        say("Their logs say which of its models they do not serve.")


def change(options: SetKey) -> None:
    """Run `tts gateway keys set`."""
    limits = {name: getattr(options, name) for name in _LIMITS}
    changes: dict[str, Any] = {name: n or None for name, n in limits.items() if n is not None}
    if options.expires is not None:
        changes["expires"] = _end(options.expires, time.time())
    if options.model:
        changes["models"] = _models(options.model)
    if options.note is not None:
        changes["note"] = options.note or None
    if options.grace is not None:
        changes["grace_s"] = _grace_s(options.grace)
    if not changes:
        raise BadParameter("name what to change, such as --tokens-per-day", param_hint="KEY")
    record = _store().change(options.key, **changes)
    say(f"Key {record.id} ({record.name}) is changed. Running gateways see it within 0.2 s.")
    if options.grace is not None:
        _print_grace(record)


def rotate(options: RotateKey) -> None:
    """Run `tts gateway keys rotate`."""
    grace_s = _grace_s(options.grace)
    secret = read_secret(options.key_file) if options.key_file else None
    store = _store()
    before = store.changeable(options.key)
    key, record = store.rotate(before.id, grace_s=grace_s, secret=secret)
    _print_key(key, record, options.key_file)
    _print_grace(record)
    if before.grace_ends:
        end = _local(before.grace_ends)
        say(f"The one before that, which was valid until {end}, is refused from now on.")


def _print_grace(record: ApiKey) -> None:
    end = record.grace_ends
    say(
        "The previous secret is refused from now on."
        if end is None
        else f"The previous secret stays valid until {_local(end)}."
    )


def _models(names: list[str]) -> tuple[str, ...]:
    """The models of a key; raises BadParameter for a name that no model can have."""
    for name in names:
        strategy = name.partition(":")[2]
        if not name or not name.isprintable():
            raise BadParameter(f"{name!r:.60} names no model", param_hint="--model")
        if strategy and not any(fnmatchcase(each, strategy) for each in strategy_names()):
            raise BadParameter(
                f"there is no strategy {strategy!r:.60} (tts list strategies)", param_hint="--model"
            )
    return tuple(names)


def _print_key(key: str, record: ApiKey, file: Path | None) -> None:
    """Print a new key, unless it came from a file."""
    what = f"Key {record.id} ({record.name})"
    if file:
        say(f"{what} has the secret in {file}.")
        return
    typer.echo(key)
    say(f"{what}. It is not kept and cannot be shown again: store it now.")


def list_keys(options: ListKeys) -> None:
    """Run `tts gateway keys list`."""
    keys = _store().all()
    if options.as_json:
        print_json(keys)
        return
    if not keys:
        say("There are no keys yet: tts gateway keys create NAME")
        return
    rows = [_key_row(key) for key in keys if options.all or key.revoked is None]
    if rows:
        listed = table("id", "name", "state", "limits", "models", "created", "last use")
        for row in rows:
            listed.add_row(*row)
        consoles()[0].print(Sheet(listed, keys=2))
    if hidden := len(keys) - len(rows):
        say(f"Revoked keys that are not shown: {hidden} (--all).")


def revoke(options: RevokeKey) -> None:
    """Run `tts gateway keys revoke`."""
    revoked = _store().revoke(options.key)
    say(f"Key {revoked.id} ({revoked.name}) is revoked. Requests that it has begun go on.")


def _store() -> KeyStore:
    return KeyStore(database_file())


def _key_row(key: ApiKey) -> list[str]:
    limits = [
        f"{value:,} {name.replace('_', ' ')}"
        for name in _LIMITS
        if (value := getattr(key.limits, name)) is not None
    ]
    return [
        key.id,
        escape("\n".join(filter(None, (key.name, key.note)))),
        _state(key) + (f"\nold secret until {_local(key.grace_ends)}" if key.grace_ends else ""),
        "\n".join(limits) or "-",
        escape("\n".join(key.models)) or "all",
        _times(("", key.created, key.created_by), ("rotated ", key.rotated, key.rotated_by)),
        _times(("", key.last_used, None)) + (f"\n{key.last_client}" if key.last_client else ""),
    ]


def _state(key: ApiKey) -> str:
    if key.revoked is not None:
        return _times(("revoked ", key.revoked, key.revoked_by))
    if key.expires is None:
        return "valid"
    expired = key.expires <= time.time()
    return f"{'expired' if expired else 'valid until'} {_local(key.expires)}"


def _times(*events: tuple[str, float | None, str | None]) -> str:
    """When each of some events was and, below it, which user did it; a dash for none."""
    lines = []
    for what, when, user in events:
        if when is not None:
            lines += [f"{what}{_local(when)}", *([f"by {escape(user)}"] if user else [])]
    return "\n".join(lines) or "-"


def _end(when: str | None, now: float) -> float | None:
    """The Unix time that `30d`, `12h` or a day (to its end, UTC) names; raises BadParameter."""
    if when is None or when == "never":
        return None
    if seconds := _duration_s(when):
        return now + seconds
    what = "neither a time such as 30d, 12h or 45m, a day such as 2027-01-31, nor never"
    day = _parsed(when, lambda text: datetime.strptime(text, "%Y-%m-%d"), what, "--expires")
    if (ends := day.replace(tzinfo=UTC).timestamp() + 86_400) <= now:
        raise BadParameter(f"{when} is over", param_hint="--expires")
    return ends


def _parsed(text: str, parse: Callable[[str], T], what: str, option: str) -> T:
    """The value of an option's text; raises BadParameter saying what the text is instead."""
    try:
        return parse(text)
    except ValueError:
        raise BadParameter(f"{text!r:.60} is {what}", param_hint=option) from None


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _duration_s(text: str) -> float | None:
    """The seconds of a text such as `30d`, `12h`, `15m` or `90s`; None for others."""
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([smhd])", text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def _grace_s(text: str) -> float:
    """The seconds of a grace period; raises BadParameter."""
    grace_s = 0.0 if text == "0" else _duration_s(text)
    if grace_s is None:
        raise BadParameter(
            f"{text!r:.40} is neither 0 nor a time such as 7d, 12h or 15m", param_hint="--grace"
        )
    return grace_s


def _local(unix: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix))


def requests(options: Requests) -> None:
    """Run `tts gateway requests`."""
    if options.as_json and options.form != "table":
        raise BadParameter("goes without --format", param_hint="--json")
    now, is_table = time.time(), options.form == "table" and not options.as_json
    file = options.file or database_file()
    records = read_requests(
        file,
        options.deployment,
        is_copy=options.file is not None,
        since=_time(options.since, now, "--since"),
        until=_time(options.until, now, "--until"),
        last=20 if options.last is None and is_table else options.last,
    )
    if options.as_json:
        print_json([LoggedRequest.of(record) for record in records])
    elif is_table:
        if not (rows := list(records)):
            say("No such requests are in the log.")
            return
        with read_only(file) if options.file else database(file) as connection:
            names = key_names(connection)
        consoles()[0].print(_table(rows, names))
    else:
        for line in as_json_lines(records):
            typer.echo(line)


def _time(text: str | None, now: float, option: str) -> float | None:
    """Unix time of a date, or of so long ago."""
    if text is None:
        return None
    if (seconds := _duration_s(text)) is not None:
        return now - seconds
    what = "no date such as 2026-01-31T12:00, and no time such as 15m."
    return _parsed(text, datetime.fromisoformat, what, option).timestamp()


_WORDS = ("time", "model", "outcome", "key", "client")
_NUMBERS = ("prompt\ntokens", "output\ntokens", "verifier\ntokens", "seconds")


def _table(records: Iterable[ServedRequest], names: Mapping[str, str]) -> RenderableType:
    """One table at any width, of the columns that have anything to say; long words are folded.

    `names` are those of the keys, by their ids. Ids, servers and stages are in the JSON lines.
    """
    rows = [_request_row(record, names) for record in records]
    if len({row[0][:5] for row in rows} | {time.strftime("%m-%d")}) == 1:
        rows = [[row[0][6:], *row[1:]] for row in rows]  # all of today
    filled = [any(row[place] != "-" for row in rows) for place in range(len(_WORDS + _NUMBERS))]
    numbers = list(compress(_NUMBERS, filled[len(_WORDS) :]))
    sheet = table(*compress(_WORDS, filled), right=numbers)
    sheet.padding = 0, 1, 0, 0
    for column in sheet.columns[1 : len(sheet.columns) - len(numbers)]:
        column.no_wrap, column.overflow = False, "fold"
    for row in rows:
        sheet.add_row(*compress(row, filled))
    return sheet


def _request_row(record: ServedRequest, names: Mapping[str, str]) -> list[str]:
    outcome = record.outcome if record.outcome == "ok" else f"{record.outcome} {record.status}"
    output = record.answer_tokens + record.search_tokens
    tokens = record.prompt_tokens, output, record.verifier_tokens
    return [
        time.strftime("%m-%d %H:%M:%S", time.localtime(record.time)),
        escape(record.model) or record.endpoint,
        outcome,
        escape(names.get(record.key or "", record.key or "-")),
        escape(record.client or "-"),
        *(f"{count:,}" if count else "-" for count in tokens),
        "-" if record.t6 is None else f"{record.t6:.2f}",
    ]


def usage(options: Usage) -> None:
    """Run `tts gateway usage`."""
    first = _day(options.since, "--since") or f"{datetime.now(UTC):%Y-%m}-01"
    last = _day(options.until, "--until") or "9999-12-31"
    kinds = [each.value for each in By if each in (options.by or [By.key])]
    rows = totals(read_usage(database_file(), first, last), kinds)
    if options.as_json:
        print_json(rows)
        return
    if not rows:
        say(f"Nothing has been used since {first}.")
        return
    with database(database_file()) as connection:
        names = key_names(connection)
    sheet = table(*kinds, right=[name.replace("_", "\n") for name in COUNTS])
    for row in rows:
        cells = [_shown(kind, getattr(row, kind), names) for kind in kinds]
        sheet.add_row(*cells, *(f"{getattr(row, count):,}" for count in COUNTS))
    consoles()[0].print(Sheet(sheet, keys=len(kinds)))


def _day(text: str | None, option: str) -> str | None:
    """A day as usage is kept by; raises BadParameter."""
    what = "no day such as 2026-01-31"
    return text and _parsed(text, date.fromisoformat, what, option).isoformat()


def _shown(kind: str, value: str, names: dict[str, str]) -> str:
    if kind == "key" and value:
        return escape(f"{names.get(value, '?')} ({value})")
    return escape(value) or "-"


def backup(options: Backup) -> None:
    """Run `tts gateway backup`."""
    count = copy_database(database_file(), options.file)
    say(f"{database_file()} (keys: {count}) is copied to {options.file}, which only you may read.")
