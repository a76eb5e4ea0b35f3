r"""The rules of a content filter, read from a file of the operator's.

A YAML file (`.yaml`, `.yml`) is a list:

    - term: project halcyon        # whole words, in upper or lower case
      action: redact               # default: block
      applies_to: output           # input, output or both (default)
    - pattern: \b\d{3}-\d{2}-\d{4}\b
      name: social security number # what errors call it; default: its place in the file

Any other file has a rule in each line, all of which block both: a term, or a pattern after `re:`.
Lines that begin with `#` are comments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from tts.build.errors import ConfigError
from tts.build.input_files import Unreadable, read_text
from tts.build.yaml_text import parse_yaml
from tts.constraints.regex import Search, parse_search
from tts.constraints.regular import literal

from .expressions import is_word
from .matching import Rule

Direction = Literal["input", "output"]
MAX_BYTES = 4_000_000


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A rule as the file has it."""

    term: str | None = None
    pattern: str | None = None
    name: str | None = None
    action: Literal["block", "redact"] = "block"
    applies_to: Literal["input", "output", "both"] = "both"
    inside_words: bool = False
    """A term is found within longer words, too, as languages without spaces need it."""
    match_case: bool = False
    """A term is not found in upper or lower case where it is written otherwise."""


def read_rules(file: Path) -> dict[Direction, list[Rule]]:
    """The rules of a file, by what they filter. Raises ConfigError naming file and rule."""
    try:
        text = read_text(file, MAX_BYTES)
        entries = _of_yaml(text) if file.suffix in (".yaml", ".yml") else _of_lines(text)
    except FileNotFoundError as error:
        raise ConfigError(f"There is no filter file {file}.") from error
    except Unreadable as error:
        raise ConfigError(f"The filter file {file} cannot be used: {error}.") from error
    rules: dict[Direction, list[Rule]] = {"input": [], "output": []}
    for place, entry in entries:
        try:
            rule = _rule(entry, entry.name or f"rule {place}")
        except ConfigError as error:
            raise ConfigError(f"{file}, rule {place}: {error.message}", error.hint) from error
        for direction, of_direction in rules.items():
            if entry.applies_to in (direction, "both"):
                of_direction.append(rule)
    return rules


def _of_yaml(text: str) -> list[tuple[int, _Entry]]:
    found = parse_yaml(text)
    if not isinstance(found, list):
        raise Unreadable("it must be a list of rules, each with a term or a pattern")
    entries = []
    for place, item in enumerate(found, 1):
        try:
            entries.append((place, msgspec.convert(item, _Entry)))
        except msgspec.ValidationError as error:
            raise Unreadable(f"rule {place}: {error}") from error
    return entries


def _of_lines(text: str) -> list[tuple[int, _Entry]]:
    """Its rules with the numbers of their lines."""
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line.startswith("re:"):
            entries.append((number, _Entry(pattern=line.removeprefix("re:").strip())))
        elif line and not line.startswith("#"):
            entries.append((number, _Entry(term=line)))
    return entries


def _rule(entry: _Entry, name: str) -> Rule:
    if (entry.term is None) == (entry.pattern is None):
        raise ConfigError("A rule has a term or a pattern, one of them.")
    if entry.pattern is not None:
        if entry.inside_words or entry.match_case:
            raise ConfigError(
                "inside_words and match_case are for terms.",
                hint=r"A pattern says \b at its ends for whole words, (?i) in front for any case.",
            )
        search = parse_search(entry.pattern)
    else:
        search = _term(entry)
    return Rule(name, search, blocks=entry.action == "block")


def _term(entry: _Entry) -> Search:
    term = entry.term or ""
    if not term.strip():
        raise ConfigError("The term is empty.")
    whole = not entry.inside_words
    return Search(
        literal(term),
        begins_word=whole and is_word(term[0]),
        ends_word=whole and is_word(term[-1]),
        ignores_case=not entry.match_case,
    )
