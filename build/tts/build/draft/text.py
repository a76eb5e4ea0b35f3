"""A draft as YAML: above each field its description, and why it has its value."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ..spec import Deployment
from ..spec.field_docs import field_doc
from ..spec.load import models_at
from .values import Draft, Place

WIDTH = 79
"""Columns of a comment, with its indent."""
_PLAIN = re.compile(r"[\w~/.][\w~/.:@-]*(?<!:)", re.ASCII)
"""Texts that may do without quotation marks, if YAML reads them as texts."""


def as_text(draft: Draft) -> str:
    """The text of the file."""
    lines = [*_comment(draft.title, ""), "", *_section(draft, (), draft.values)]
    return "\n".join(lines) + "\n"


def _section(draft: Draft, place: Place, values: Mapping[str, Any]) -> Iterator[str]:
    indent = "  " * len(place)
    for name, value in values.items():
        if not place and isinstance(value, Mapping):
            yield ""
        yield from _comment(_about(draft, (*place, name)), indent)
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _section(draft, (*place, name), value)
        else:
            yield f"{indent}{name}: {_value(value, indent)}"
    for (*section, name), value in draft.suggested.items():
        if tuple(section) == place:
            yield from _comment(_about(draft, (*place, name)), indent)
            yield f"{indent}# {name}: {_value(value, indent)}"


def _about(draft: Draft, place: Place) -> str:
    *section, name = place
    models = models_at(Deployment, section, draft.values)
    docs = (field_doc(name, model) for model in models)
    return f"{next(filter(None, docs), '')} {draft.notes.get(place, '')}"


def _comment(text: str, indent: str) -> list[str]:
    """Lines of a comment: whatever a name in it holds, nothing of it becomes a line of YAML."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return textwrap.wrap(
        " ".join(shown.split()),
        WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _value(value: Any, indent: str) -> str:
    if isinstance(value, str):
        return _text(value, indent)
    flow: str = yaml.safe_dump(value, default_flow_style=True, width=10**6)
    return flow.removesuffix("\n").removesuffix("\n...")


def _text(value: str, indent: str) -> str:
    if "\n" in value:
        lines = [f"{indent}  {line}".rstrip() for line in value.split("\n")]
        block = "\n".join(["|-", *lines])
        if _reads_as(f"x: {block}", value):
            return block
    if _PLAIN.fullmatch(value) and _reads_as(f"x: {value}", value):
        return value
    if "\\" in value and _reads_as(f"x: '{value}'", value):
        return f"'{value}'"
    quoted: str = yaml.safe_dump(value, default_style='"', width=10**6, allow_unicode=True)
    return quoted.removesuffix("\n")


def _reads_as(text: str, value: str) -> bool:
    try:
        return bool(yaml.safe_load(text) == {"x": value})
    except yaml.YAMLError:
        return False
