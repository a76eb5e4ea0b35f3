r"""Content filters: what no prompt or no answer may hold. A chain, each filter given what the one
before it has let through.

An answer is filtered as it comes. The output does not depend on how it was cut into chunks: text
is held back while it may still belong to something that a filter removes.

The operator's rules are in a file. A YAML file (`.yaml`, `.yml`) is a list of `_RuleEntry`; any
other file has a rule in each line, all of which block both prompts and answers: a term, or a
pattern after `re:`. Lines that begin with `#` are comments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from tts.base.errors import ConfigError
from tts.base.input_files import Unreadable, read_text
from tts.base.yaml_text import parse_yaml
from tts.plugins import PluginGroup, package_of

from .matching import FilterRule, Matcher, Matching, pattern_rule, term_rule

PLUGINS = PluginGroup("tts.filters", "filter")
Direction = Literal["input", "output"]
MAX_BYTES = 4_000_000


class TextStream(Protocol):
    """One text on its way through a filter; `feed` and `end` may raise ContentBlocked."""

    def feed(self, text: str) -> str:
        """Take the next part; the text that may be sent now."""
        ...

    def end(self) -> str:
        """The rest of the text, which is complete."""
        ...


Filter = Callable[[], TextStream]


@dataclass(frozen=True, slots=True)
class FilterChain:
    """The filters of a gateway, in order, by direction."""

    of_input: tuple[Filter, ...] = ()
    of_output: tuple[Filter, ...] = ()

    @classmethod
    def load(cls, file: Path | None = None, names: Sequence[str] = ()) -> FilterChain:
        """The rules of a file, then the filters that other packages bring, by their names."""
        plugins = tuple(map(load_filter, names))
        if file is None:
            return cls(plugins, plugins)
        rules = read_rules(file)
        of_input, of_output = map(_matching, (rules["input"], rules["output"]))
        return cls((*of_input, *plugins), (*of_output, *plugins))

    def prompt(self) -> Chained:
        """Filters one prompt, or one message of it."""
        return Chained([begin() for begin in self.of_input])

    def output(self) -> Chained:
        """Filters one answer."""
        return Chained([begin() for begin in self.of_output])


def _matching(rules: Sequence[FilterRule]) -> tuple[Filter, ...]:
    return (partial(Matching, Matcher(rules)),) if rules else ()


class Chained:
    """Streams one after the other."""

    def __init__(self, streams: Sequence[TextStream]) -> None:
        self._streams = streams

    def feed(self, text: str) -> str:
        """Take the next part of the text; what has come through all of them."""
        for stream in self._streams:
            text = stream.feed(text)
        return text

    def end(self) -> str:
        """The held-back text of all streams, each end passed on through those after it."""
        rest = ""
        for stream in self._streams:
            rest = (stream.feed(rest) if rest else "") + stream.end()
        return rest

    def whole(self, text: str) -> str:
        """All that comes through of a text."""
        return self.feed(text) + self.end()


class Whole:
    """A stream for a function of the whole text: everything is held back until the text ends."""

    def __init__(self, function: Callable[[str], str]) -> None:
        self._function = function
        self._parts: list[str] = []

    def feed(self, text: str) -> str:
        """Keep a part."""
        self._parts.append(text)
        return ""

    def end(self) -> str:
        """The text that the function makes of the whole."""
        return self._function("".join(self._parts))


def load_filter(name: str) -> Filter:
    """The filter of another package, by the name of its entry point in the group `tts.filters`.

    It refers to a function from text to text, which is given each text whole, or to a class of
    streams (`feed`, `end`). Both may raise ContentBlocked. Raises ConfigError if there is none.
    """
    plugin = PLUGINS.find(name)
    if plugin is None:
        names = ", ".join(PLUGINS.names()) or "none is installed"
        raise ConfigError(f"There is no filter {name!r:.100}.", hint=f"Known: {names}.")
    loaded = PLUGINS.load(plugin)
    if isinstance(loaded, type) and hasattr(loaded, "feed") and hasattr(loaded, "end"):
        return loaded
    if callable(loaded) and not isinstance(loaded, type):
        return lambda: Whole(loaded)
    raise ConfigError(
        f"{PLUGINS.describe(plugin)} must be a function from text to text, or a class with feed "
        f"and end, not {loaded!r:.60}.",
        hint=f"Fix or uninstall {package_of(plugin)}.",
    )


class _RuleEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A rule as the file has it: a term or a pattern, and what errors call it."""

    term: str | None = None
    pattern: str | None = None
    name: str | None = None
    action: Literal["block", "redact"] = "block"
    applies_to: Literal["input", "output", "both"] = "both"
    inside_words: bool = False
    """A term is found within longer words, too, as languages without spaces need it."""
    match_case: bool = False
    """A term is not found in upper or lower case where it is written otherwise."""


def read_rules(file: Path) -> dict[Direction, list[FilterRule]]:
    """The rules of a file, by what they filter. Raises ConfigError naming file and rule."""
    try:
        text = read_text(file, MAX_BYTES)
        entries = _of_yaml(text) if file.suffix in (".yaml", ".yml") else _of_lines(text)
    except FileNotFoundError as error:
        raise ConfigError(f"There is no filter file {file}.") from error
    except Unreadable as error:
        raise ConfigError(f"The filter file {file} cannot be used: {error}.") from error
    rules: dict[Direction, list[FilterRule]] = {"input": [], "output": []}
    for place, entry in entries:
        try:
            rule = _rule(entry, entry.name or f"rule {place}")
        except ConfigError as error:
            raise ConfigError(f"{file}, rule {place}: {error.message}", error.hint) from error
        for direction, of_direction in rules.items():
            if entry.applies_to in (direction, "both"):
                of_direction.append(rule)
    return rules


def _of_yaml(text: str) -> list[tuple[int, _RuleEntry]]:
    items = parse_yaml(text)
    if not isinstance(items, list):
        raise Unreadable("it must be a list of rules, each with a term or a pattern")
    entries = []
    for place, item in enumerate(items, 1):
        try:
            entries.append((place, msgspec.convert(item, _RuleEntry)))
        except msgspec.ValidationError as error:
            raise Unreadable(f"rule {place}: {error}") from error
    return entries


def _of_lines(text: str) -> list[tuple[int, _RuleEntry]]:
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line.startswith("re:"):
            entries.append((number, _RuleEntry(pattern=line.removeprefix("re:").strip())))
        elif line and not line.startswith("#"):
            entries.append((number, _RuleEntry(term=line)))
    return entries


def _rule(entry: _RuleEntry, name: str) -> FilterRule:
    if (entry.term is None) == (entry.pattern is None):
        raise ConfigError("A rule has a term or a pattern, one of them.")
    if entry.pattern is not None:
        if entry.inside_words or entry.match_case:
            raise ConfigError(
                "inside_words and match_case are for terms.",
                hint=r"A pattern says \b at its ends for whole words, (?i) in front for any case.",
            )
        return pattern_rule(name, entry.pattern, blocks=entry.action == "block")
    term = entry.term or ""
    if not term.strip():
        raise ConfigError("The term is empty.")
    return term_rule(
        name,
        term,
        blocks=entry.action == "block",
        whole=not entry.inside_words,
        ignores_case=not entry.match_case,
    )
