r"""What rules search for, as one expression of RE2. Pure.

A match is found together with the character before it and the one after it. So `\b` needs no
assertion, which RE2 has for ASCII alone: the character outside and the one inside are of two kinds,
one part of a word (`\w` of Unicode) and the other not. Texts whose first or last character may be
of either kind are searched for once for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from tts.constraints.regex import Search
from tts.constraints.regular import Chars, Choice, Node, Repeat, Seq, chars, without

_ALL = chars((0, 0x10FFFF))
_ANY = "(?s:.)"
_DOTLESS = chars((ord("ı"), ord("ı")))
"""The one letter that Python takes for a lower case of I and RE2 does not."""


Part = tuple[str, str, str]
"""What may stand before a match, and after it, and the match: three expressions of one rule."""


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
    """What may stand outside of one end of a match, each with the texts that it may stand by."""
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
    most = "" if node.most is None else node.most
    return f"(?:{_text(node.node, ignores_case)}{{{node.least},{most}}})"
