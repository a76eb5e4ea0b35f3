r"""Finding every match of some rules in a text that comes in parts, with RE2.

RE2 reads a text in linear time: no expression makes it try again (backtrack). It needs to see a
match whole, so as much of the text is held back as the longest match of the rules takes, their
*window*. Text that begins before the window is known for good, and goes out: redacted where it is
part of a match, overlapping ones as one. So the output depends on the text alone, not on its parts.

A match is found together with the character before it and the one after it. So a word's edge needs
no assertion, which RE2 has for ASCII alone: the character outside is no letter, digit or `_`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tts.base.errors import ConfigError, ContentBlocked
from tts.base.extras import how_to_install

REDACTED = "[redacted]"
MAX_WINDOW = 1000
"""Characters of a match: as many may be held back."""
MAX_MEMORY = 64_000_000
"""Bytes that RE2 may use for one expression, its states included."""
MAX_MATCHES = 200_000
"""Matches to redact of one text, overlapping ones counted each: under a second to find."""
_PIECE = 1000
"""Characters that are read at a time: RE2 is handed all that is held for each match."""
_EDGE = "\n"
"""Character before the beginning of a text, and after its end: no part of a word."""


@dataclass(frozen=True, slots=True)
class FilterRule:
    """A pattern, and whether it blocks the text or is redacted."""

    name: str
    text: str
    """The expression of a match, as one item of RE2."""
    edges: tuple[bool, bool]
    """Whether a word must begin with it, and end."""
    blocks: bool
    longest: int


class Matcher:
    """Rules ready to be searched for, shared by all texts; ConfigError for what RE2 cannot take."""

    def __init__(self, rules: Sequence[FilterRule]) -> None:
        self.window = max((rule.longest for rule in rules), default=0)
        self._blocking = [rule for rule in rules if rule.blocks]
        self.blocks = _compiled(self._blocking)
        self.redacts = _compiled([rule for rule in rules if not rule.blocks])

    def name_at(self, text: str, place: int) -> str:
        """The first rule that blocks what `blocks` has found at a place, by halving the rules."""
        rules = self._blocking
        while len(rules) > 1:
            first = rules[: len(rules) // 2]
            compiled = _compiled(first)
            rules = first if compiled.match(text, place) else rules[len(first) :]
        return rules[0].name


class Matching:
    """One text on its way through the rules; the call after a match that blocks raises."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._held = _EDGE
        """The text that was not given out yet, after the character before it."""
        self._next = 0
        """Where in the held text the next match may begin, with the character before it."""
        self._found: list[tuple[int, int]] = []
        """Spans to redact in the held text, from and to; apart, in order."""
        self._matches = 0
        self._blocked: str | None = None

    def feed(self, text: str) -> str:
        """Take the next part; return what is certain not to belong to a match, or a mark for it."""
        self._raise_if_blocked()
        passed = []
        for start in range(0, len(text), _PIECE):
            self._held += text[start : start + _PIECE]
            passed.append(self._read(len(self._held) - self._matcher.window - 1))
            if self._blocked is not None:
                break
        return "".join(passed)

    def end(self) -> str:
        """The text is complete; return what was held back."""
        self._raise_if_blocked()
        self._held += _EDGE
        passed = self._read(len(self._held) - 2)
        self._raise_if_blocked()
        return passed

    def _read(self, end: int) -> str:
        """Find all that begins before the place `end`, and give out what is settled by it."""
        if end <= self._next:
            return ""
        # 1. A match that blocks: nothing from there on is given out any more.
        blocks, redacts = self._matcher.blocks, self._matcher.redacts
        if blocks and (match := blocks.search(self._held, self._next)) and match.start() < end:
            end = match.start()
            self._blocked = self._matcher.name_at(self._held, end)
        # 2. The longest match from each place on: together they cover all matches.
        while redacts and (match := redacts.search(self._held, self._next)):
            begin = match.start()
            if begin >= end:
                break
            self._redact(begin + 1, match.end() - 1)
            self._next = begin + 1
        self._next = end
        # 3. What is settled, but no part of a redaction that may become longer.
        return self._give_out(end + 1)

    def _redact(self, begin: int, end: int) -> None:
        self._matches += 1
        if self._matches > MAX_MATCHES:
            raise ContentBlocked("The content filter refuses this text: it takes too long to read.")
        if self._found and begin < self._found[-1][1]:
            begin, end = self._found[-1][0], max(end, self._found.pop()[1])
        self._found.append((begin, end))

    def _give_out(self, settled: int) -> str:
        passed: list[str] = []
        at, rest = 1, []
        for begin, end in self._found:
            if end <= settled:
                passed += (self._held[at:begin], REDACTED)
                at = end
            else:
                settled = min(settled, begin)
                rest.append((begin, end))
        passed.append(self._held[at:settled])
        gone = settled - 1
        self._held = self._held[gone:]
        self._next -= gone
        self._found = [(begin - gone, end - gone) for begin, end in rest]
        return "".join(passed)

    def _raise_if_blocked(self) -> None:
        if self._blocked is not None:
            raise ContentBlocked(f"The content filter refuses this text (rule {self._blocked!r}).")


def pattern_rule(name: str, pattern: str, *, blocks: bool) -> FilterRule:
    r"""The rule of an expression with (?i) in front and \b at its ends; or ConfigError."""
    bare = pattern.removeprefix("(?i)")
    ignores_case = bare != pattern
    begins_word, ends_word = bare.startswith(r"\b"), bool(re.search(r"(?<!\\)(?:\\\\)*\\b$", bare))
    bare = bare[2 * begins_word : len(bare) - 2 * ends_word]
    if (begins_word or ends_word) and _is_choice(bare):
        raise ConfigError(r"Of a choice, \b belongs to one option; write \b(?:...|...)\b.")
    try:
        with warnings.catch_warnings(action="ignore"):
            parsed = re._parser.parse(bare)  # type: ignore[attr-defined]  # RE2 tells no widths
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"The expression {pattern!r:.200} is wrong: {error}.") from None
    if any(f"AT_{edge}" in repr(parsed) for edge in ("BEGINNING", "END")):
        raise ConfigError(
            f"In the expression {pattern!r:.200} ^ and $ are not supported; write \\^ and \\$ for "
            "the characters."
        )
    least, longest = parsed.getwidth()
    if not least:
        raise ConfigError(
            f"The filter rule {name!r:.100} matches the empty text, which is everywhere.",
            hint="Let it have a character at least.",
        )
    text = f"(?{'i' * ignores_case}:{bare})"
    rule = FilterRule(name, text, (begins_word, ends_word), blocks, _held_back(name, longest))
    _compiled([rule])
    return rule


def term_rule(name: str, term: str, *, blocks: bool, whole: bool, ignores_case: bool) -> FilterRule:
    """The rule of a text; `whole`: only where it is no part of a longer word."""
    begins, ends = (whole and (char.isalnum() or char == "_") for char in (term[0], term[-1]))
    text = f"(?{'i' * ignores_case}:{re.escape(term)})"
    return FilterRule(name, text, (begins, ends), blocks, _held_back(name, len(term)))


def _held_back(name: str, longest: int) -> int:
    if longest > MAX_WINDOW:
        raise ConfigError(
            f"The filter rule {name!r:.100} can match more than {MAX_WINDOW:,} characters; no more "
            "can be held back.",
            hint="Say how often something may repeat: {1,100} in place of + or *.",
        )
    return longest


def _expression(rules: Sequence[FilterRule]) -> str:
    """A match of any of the rules, with one character on each side; they share the sides."""
    texts: dict[tuple[bool, bool], list[str]] = {}
    for rule in rules:
        texts.setdefault(rule.edges, []).append(rule.text)
    sides = {False: "(?s:.)", True: r"[^\pL\pN_]"}
    return "|".join(
        f"{sides[begins]}(?:{'|'.join(own)}){sides[ends]}" for (begins, ends), own in texts.items()
    )


def _is_choice(text: str) -> bool:
    """Whether an expression has options outside of all groups."""
    text = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]", "", text, flags=re.DOTALL)
    while (inner := re.sub(r"\([^()]*\)", "", text)) != text:
        text = inner
    return "|" in text


def _compiled(rules: Sequence[FilterRule]) -> Any:
    """Some rules as one expression of RE2; None without rules."""
    if not rules:
        return None
    try:
        import re2
    except ImportError as error:
        raise ConfigError(
            "Rules of content filters need RE2, which is not installed.",
            hint=f"Install it: {how_to_install('filters')}",
        ) from error
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.longest_match = options.never_capture = True
    options.log_errors = False
    try:
        compiled = re2.compile(_expression(rules), options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        if "too large" not in reason:
            raise ConfigError(
                f"RE2 does not read the rule {rules[0].name!r:.100}: {reason}."
            ) from None
        compiled = None
    # it also reads a match backwards, for its beginning
    if compiled is None or compiled.reverseprogramsize <= 0:
        raise ConfigError(
            "The filter rules are too large: RE2 cannot compile them together.",
            hint="Leave some out, or repeat less.",
        )
    return compiled
