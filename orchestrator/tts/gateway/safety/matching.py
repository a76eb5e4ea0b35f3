r"""Finding every match of some rules in a text that comes in parts, with RE2.

RE2 reads a text in linear time: no expression makes it try again (backtrack). It needs to see a
match whole, so as much of the text is held back as the longest match of the rules takes, their
*window*. Text that begins before the window is known for good, and goes out: redacted where it is
part of a match, overlapping ones as one. So the output depends on the text alone, not on its parts.

A match is found together with the character before it and the one after it. So `\b` needs no
assertion, which RE2 has for ASCII alone: the character outside and the one inside are of two kinds,
one part of a word (`\w` of Unicode) and the other not. Texts whose first or last character may be
of either kind are searched for once for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tts.build.errors import ConfigError, ContentBlocked
from tts.build.extras import how_to_install
from tts.constraints.regex import Search
from tts.constraints.regular import Chars, Choice, Node, Repeat, Seq, chars, without

REDACTED = "[redacted]"
"""Replacement of removed text."""
MAX_WINDOW = 1000
"""Characters of a match: as many may be held back."""
MAX_MEMORY = 64_000_000
"""Bytes that RE2 may use for one expression, its states included."""
MAX_MATCHES = 200_000
"""Matches to redact of one text, overlapping ones counted each: under a second to find."""
_PIECE = 1000
"""Characters that are read at a time: RE2 is handed all that is held for each match."""
_EDGE = "\n"
"""What stands before the beginning of a text, and after its end: no part of a word."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern, and whether it blocks the text or is redacted."""

    name: str
    search: Search
    blocks: bool


class Matcher:
    """Rules ready to be searched for, shared by all texts.

    Raises ConfigError if a rule is not usable, all are too large, or RE2 is not installed.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.window = max((_length(rule) for rule in rules), default=0)
        """Characters that are held back."""
        blocking = [(rule.name, parts(rule.search)) for rule in rules if rule.blocks]
        self.blocks = _compiled(blocking)
        self.redacts = _compiled(
            [(rule.name, parts(rule.search)) for rule in rules if not rule.blocks]
        )
        self._blocking = blocking

    def name_at(self, text: str, place: int) -> str:
        """The first rule that blocks what `blocks` has found at a place, by halving the rules."""
        rules = self._blocking
        while len(rules) > 1:
            first = rules[: len(rules) // 2]
            compiled = _compiled(first)
            rules = first if compiled.match(text, place) else rules[len(first) :]
        return rules[0][0]


class Matching:
    """One text on its way through the rules: a stream of `filters`.

    Text before a match that blocks is still given out; the next call raises ContentBlocked.
    """

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
        given = []
        for start in range(0, len(text), _PIECE):
            self._held += text[start : start + _PIECE]
            given.append(self._read(len(self._held) - self._matcher.window - 1))
            if self._blocked is not None:
                break
        return "".join(given)

    def end(self) -> str:
        """The text is complete; return what was held back."""
        self._raise_if_blocked()
        self._held += _EDGE
        given = self._read(len(self._held) - 2)
        self._raise_if_blocked()
        return given

    def _read(self, known: int) -> str:
        """Find all that begins before the place `known`, and give out what is settled by it."""
        if known <= self._next:
            return ""
        # 1. A match that blocks: nothing from there on is given out any more.
        blocks, redacts = self._matcher.blocks, self._matcher.redacts
        if blocks and (match := blocks.search(self._held, self._next)) and match.start() < known:
            known = match.start()
            self._blocked = self._matcher.name_at(self._held, known)
        # 2. The longest match from each place on: together they cover all matches.
        while redacts and (match := redacts.search(self._held, self._next)):
            begin, end = match.span()
            if begin >= known:
                break
            self._redact(begin + 1, end - 1)
            self._next = begin + 1
        self._next = known
        # 3. What is settled, but no part of a redaction that may become longer.
        return self._give_out(known + 1)

    def _redact(self, begin: int, end: int) -> None:
        self._matches += 1
        if self._matches > MAX_MATCHES:
            raise ContentBlocked("The content filter refuses this text: it takes too long to read.")
        if self._found and begin < self._found[-1][1]:
            begin, end = self._found[-1][0], max(end, self._found.pop()[1])
        self._found.append((begin, end))

    def _give_out(self, settled: int) -> str:
        given: list[str] = []
        at, left = 1, []
        for begin, end in self._found:
            if end <= settled:
                given += (self._held[at:begin], REDACTED)
                at = end
            else:
                settled = min(settled, begin)
                left.append((begin, end))
        given.append(self._held[at:settled])
        gone = settled - 1
        self._held = self._held[gone:]
        self._next -= gone
        self._found = [(begin - gone, end - gone) for begin, end in left]
        return "".join(given)

    def _raise_if_blocked(self) -> None:
        if self._blocked is not None:
            raise ContentBlocked(f"The content filter refuses this text (rule {self._blocked!r}).")


def _length(rule: Rule) -> int:
    """Characters of a rule's longest match; ConfigError if it cannot be filtered by."""
    length = longest(rule.search.node)
    if length is None or length > MAX_WINDOW:
        raise ConfigError(
            f"The filter rule {rule.name!r:.100} can match "
            f"{'a text of any length' if length is None else f'{length:,} characters'}; "
            f"at most {MAX_WINDOW:,} can be held back.",
            hint="Say how often something may repeat: {1,100} in place of + or *.",
        )
    if may_be_empty(rule.search.node):
        raise ConfigError(
            f"The filter rule {rule.name!r:.100} matches the empty text, which is everywhere.",
            hint="Let it have a character at least.",
        )
    return length


def _compiled(rules: Sequence[tuple[str, list[Part]]]) -> Any:
    """Some rules, by name, as one expression of RE2; None without rules."""
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
        text = expression(part for _, own in rules for part in own)
        compiled = re2.compile(text, options)
        fits = compiled.reverseprogramsize > 0  # it also reads a match backwards, for its beginning
    except re2.error:
        fits = False
    if not fits:
        raise ConfigError(
            "The filter rules are too large: RE2 cannot compile them together.",
            hint="Leave some out, or repeat less.",
        )
    return compiled


_ALL = chars((0, 0x10FFFF))
_ANY = "(?s:.)"
_DOTLESS = chars((ord("ı"), ord("ı")))
"""The one letter that Python takes for a lower case of I and RE2 does not."""


Part = tuple[str, str, str]
"""Three expressions of one rule: the text allowed before a match, after it, and the match."""


def parts(search: Search) -> list[Part]:
    """All matches of a search: those of each part, each with a character on both sides."""
    found = []
    for before, node in _with_outside(search.node, search.begins_word, at_end=False):
        for after, texts in _with_outside(node, search.ends_word, at_end=True):
            text = _text(texts, search.ignores_case)
            found.append((before, after, f"(?i:{text})" if search.ignores_case else text))
    return found


def expression(parts: Iterable[Part]) -> str:
    """One expression for all matches of some parts; those with equal sides share them."""
    between: dict[tuple[str, str], list[str]] = {}
    for before, after, text in parts:
        between.setdefault((before, after), []).append(text)
    return "|".join(
        f"{before}(?:{'|'.join(texts)}){after}" for (before, after), texts in between.items()
    )


def longest(node: Node) -> int | None:
    """Characters of the longest text of a language; None if there is none."""
    if isinstance(node, Chars):
        return 1
    if isinstance(node, Seq | Choice):
        parts = node.parts if isinstance(node, Seq) else node.options
        lengths = [longest(part) for part in parts]
        known = [length for length in lengths if length is not None]
        if len(known) < len(lengths):
            return None
        return sum(known) if isinstance(node, Seq) else max(known)
    assert isinstance(node, Repeat)  # what is searched for is regular: it has no rules
    length = longest(node.node)
    if length == 0 or node.most == 0:
        return 0
    return None if length is None or node.most is None else length * node.most


def may_be_empty(node: Node) -> bool:
    """Whether a language holds the empty text."""
    if isinstance(node, Chars):
        return False
    if isinstance(node, Seq):
        return all(map(may_be_empty, node.parts))
    if isinstance(node, Choice):
        return any(map(may_be_empty, node.options))
    assert isinstance(node, Repeat)
    return node.least == 0 or may_be_empty(node.node)


def is_word(char: str) -> bool:
    """Whether a character is part of a word, as `re` has it."""
    return char.isalnum() or char == "_"


@cache
def _kinds() -> tuple[tuple[str, Chars], ...]:
    """The characters that are part of words, and all others, each with their expression."""
    word = chars(*((code, code) for code in range(0x110000) if is_word(chr(code))))
    other = without(_ALL, word)
    return (_text(word, False), word), (_text(other, False), other)


def _with_outside(node: Node, is_edge: bool, *, at_end: bool) -> list[tuple[str, Node]]:
    """The texts allowed outside of one end of a match, each with the texts that it may stand by."""
    if not is_edge:
        return [(_ANY, node)]
    pairs = [(text, _edged(node, outside, at_end)) for text, outside in _kinds()]
    return [(text, texts) for text, texts in pairs if texts is not None]


def _edged(node: Node, never: Chars, at_end: bool) -> Node | None:
    """The texts of a language whose first or last character is none of some; None without any."""
    if isinstance(node, Chars):
        left = without(node, never)
        return left if left.ranges else None
    if isinstance(node, Choice):
        edged = (_edged(option, never, at_end) for option in node.options)
        found = tuple(option for option in edged if option is not None)
        return Choice(found) if found else None
    if isinstance(node, Repeat):
        edge = _edged(node.node, never, at_end)
        if edge is None or node.most == 0:
            return None
        most = None if node.most is None else node.most - 1
        rest = Repeat(node.node, max(0, node.least - 1), most)
        return Seq((rest, edge) if at_end else (edge, rest))
    assert isinstance(node, Seq)
    parts = node.parts[::-1] if at_end else node.parts
    options: list[Node] = []
    for place, part in enumerate(parts):
        if (edge := _edged(part, never, at_end)) is not None:
            texts = (edge, *parts[place + 1 :])
            options.append(Seq(texts[::-1] if at_end else texts))
        if not may_be_empty(part):
            break
    return Choice(tuple(options)) if options else None


def _text(node: Node, ignores_case: bool) -> str:
    """A language in RE2's notation, as one item."""
    if isinstance(node, Chars):
        if ignores_case and ("i" in node or "I" in node):
            node = chars(*node.ranges, *_DOTLESS.ranges)
        ranges = [f"\\x{{{low:x}}}-\\x{{{high:x}}}" for low, high in node.ranges]
        return f"[{''.join(ranges)}]"
    if isinstance(node, Seq):
        return f"(?:{''.join(_text(part, ignores_case) for part in node.parts)})"
    if isinstance(node, Choice):
        return f"(?:{'|'.join(_text(option, ignores_case) for option in node.options)})"
    assert isinstance(node, Repeat)
    most = "" if node.most is None else node.most
    return f"(?:{_text(node.node, ignores_case)}{{{node.least},{most}}})"
