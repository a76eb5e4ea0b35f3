"""Which columns of a file hold what: a problem's text, its answer, id, level and choices."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal, cast, get_args

from tts.build.errors import DatasetError

Role = Literal["problem", "answer", "id", "level", "choices"]
Columns = Mapping[Role, str]
"""The columns that the user named, by what they hold."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)
USUAL: Final[Mapping[Role, tuple[str, ...]]] = {
    "problem": ("problem", "question"),
    "answer": ("answer",),
    "id": ("unique_id", "id"),
    "level": ("level",),
    "choices": (),
}
"""What a column is called where the user does not say; the first that a row has counts."""
REQUIRED: Final[frozenset[Role]] = frozenset(("problem",))

_NEXT = re.compile(r",(?=\w+=)")


def parse_columns(given: Iterable[str]) -> dict[Role, str]:
    """The columns of `problem=question,answer=final`; a part may stand by itself, too.

    A comma that no `name=` follows belongs to the column's name. Raises DatasetError.
    """
    columns: dict[Role, str] = {}
    for part in (part for text in given for part in _NEXT.split(text)):
        role, separator, column = part.partition("=")
        if not separator or not column:
            raise DatasetError(
                f"{part!r:.100} names no column.",
                hint="Write what a column holds, =, and its name: problem=question,answer=final.",
            )
        if role in columns:
            raise DatasetError(f"The column of {role} is given twice.")
        columns.update(check_columns({role: column}))
    return columns


def check_columns(given: Mapping[Any, str]) -> dict[Role, str]:
    """A mapping that is checked to name nothing but roles; raises DatasetError."""
    for role, column in given.items():
        if role not in ROLES:
            raise DatasetError(
                f"Columns hold {', '.join(ROLES[:-1])} or {ROLES[-1]}, not {role!r:.100}."
            )
        if not isinstance(column, str) or not column:
            raise DatasetError(f"The column of {role} is {column!r:.100}; it must be a name.")
    return cast("dict[Role, str]", dict(given))


def column_of(role: Role, columns: Columns, present: Collection[str], where: str) -> str | None:
    """The column that holds `role` in a row with these columns; None for an optional one.

    A column that the user named must be there. Raises DatasetError naming `where` and what there
    is.
    """
    wanted = (columns[role],) if role in columns else USUAL[role]
    for name in wanted:
        if name in present:
            return name
    if role not in columns and role not in REQUIRED:
        return None
    raise lacking(wanted, present, where)


def choice_columns(columns: Columns, present: Collection[str], where: str) -> tuple[str, ...]:
    """The columns that hold the choices: one with all of them, or `A+B+C` one for each.

    None of a dataset without choices. Raises DatasetError.
    """
    if "choices" not in columns:
        return ()
    named = columns["choices"]
    if named in present:
        return (named,)
    parts = tuple(named.split("+"))
    if missing := tuple(name for name in parts if name not in present):
        raise lacking(missing[:1], present, where)
    return parts


def lacking(wanted: Collection[str], present: Collection[str], where: str) -> DatasetError:
    """A column that is not there, and those that are."""
    there = ", ".join(sorted(present)) or "none"
    return DatasetError(
        f"{where} lacks the field {' or '.join(map(repr, wanted))}; it has {there:.500}.",
        hint="Name the columns: --columns problem=...,answer=... (in Python columns={...}).",
    )
