"""Content filters: what no prompt or no answer may hold. A chain, each filter given what the one
before it has let through.

    chain = FilterChain.load(file, names)          # ConfigError if one is wrong
    prompt = chain.input(prompt)                   # ContentBlocked, or the text, perhaps redacted
    stream = chain.output()                        # one for each answer (each choice of n)
    send(stream.feed(chunk)); ...; send(stream.end())

An answer is filtered as it comes. What is sent does not depend on how it was cut into chunks: text
is held back while it may still belong to something that a filter removes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from tts.build.errors import ConfigError
from tts.plugins import PluginGroup, package_of

from .matching import Matcher, Matching, Rule
from .rules import read_rules

PLUGINS = PluginGroup("tts.filters", "filter")


class TextStream(Protocol):
    """One text on its way through a filter; `feed` and `end` may raise ContentBlocked."""

    def feed(self, text: str) -> str:
        """Take the next part; what may be sent now."""
        ...

    def end(self) -> str:
        """The text is complete: what is left to send."""
        ...


Filter = Callable[[], TextStream]
"""Begins the filtering of one text."""


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

    def input(self, text: str) -> str:
        """A prompt, or one message of it, as it may go on; raises ContentBlocked."""
        if not self.of_input:
            return text
        stream = self.prompt()
        return stream.feed(text) + stream.end()

    def prompt(self) -> TextStream:
        """What one prompt is sent through where it comes in parts."""
        return Chained([begin() for begin in self.of_input])

    def output(self) -> TextStream:
        """What one answer is sent through."""
        return Chained([begin() for begin in self.of_output])


def _matching(rules: Sequence[Rule]) -> tuple[Filter, ...]:
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
        """What the streams have held back, each end passed on through those after it."""
        left = ""
        for stream in self._streams:
            left = (stream.feed(left) if left else "") + stream.end()
        return left


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
        """What the function makes of the text."""
        return self._function("".join(self._parts))


def load_filter(name: str) -> Filter:
    """The filter of another package, by the name of its entry point in the group `tts.filters`.

    It refers to a function from text to text, which is given each text whole, or to a class of
    streams (`feed`, `end`). Both may raise ContentBlocked. Raises ConfigError if there is none.
    """
    plugin = PLUGINS.find(name)
    if plugin is None:
        known = ", ".join(PLUGINS.names()) or "none is installed"
        raise ConfigError(f"There is no filter {name!r:.100}.", hint=f"Known: {known}.")
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
