r"""Regular expressions, as far as they are regular, read into trees. Pure.

The notation is Python's `re`: literals, `.`, classes, `\d \w \s` and their opposites (ASCII),
groups, `|`, `* + ? {m} {m,} {m,n}`.

The whole text must match, so `^` in front and `$` at the end change nothing; `.`, opposites and
negated classes stand for the characters of one line.
"""

from __future__ import annotations

import re
from typing import NoReturn

from tts.base.errors import ConfigError

from .regular import (
    EMPTY,
    TEXT,
    Chars,
    Choice,
    Node,
    Repeat,
    Seq,
    chars,
    chars_of,
    expanded,
    without,
)

MAX_LENGTH = 4096
MAX_DEPTH = 50
MAX_REPEATS = 1000
MAX_EXPANDED = 10_000
"""Most characters of an expression with its repetitions written out; those in others multiply."""

_DIGITS = chars((ord("0"), ord("9")))
_WORD = chars((ord("0"), ord("9")), (ord("A"), ord("Z")), (ord("a"), ord("z")), (95, 95))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": chars_of(" ")}
_CLASSES |= {kind.upper(): without(TEXT, some) for kind, some in _CLASSES.items()}
_CODE = {"x": 2, "u": 4, "U": 8}
_COUNT = re.compile(r"\{(\d{1,6})(,(\d{1,6})?)?\}")


def parse_regex(text: str) -> Node:
    """The language of a regular expression; raises ConfigError naming the place of a mistake."""
    return _RegexReader(text).whole()


class _RegexReader:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise ConfigError(
                f"The regular expression has {len(text):,} characters; at most {MAX_LENGTH:,} are "
                "read."
            )
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        self._accept("^")
        node = self._choice()
        if self._at < len(self._text):
            self._refuse("this ) closes no group")
        if (size := expanded(node)) > MAX_EXPANDED:
            raise ConfigError(
                f"The regular expression {self._text!r:.200} has {size:,} characters with its "
                f"repetitions written out; at most {MAX_EXPANDED:,} are allowed. Those inside "
                "others multiply."
            )
        return node

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._accept("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while (char := self._next()) and char not in "|)":
            if char == "$" and self._at == len(self._text) - 1 and not self._depth:
                self._at += 1
                break
            parts.append(self._repeated(self._atom(char)))
        return parts[0] if len(parts) == 1 else Seq(tuple(parts)) if parts else EMPTY

    def _atom(self, char: str) -> Node:
        if char == "(":
            return self._group()
        if char in "*+?":
            self._refuse(f"nothing stands before {char} that it could repeat")
        if char in "^$":
            self._refuse(
                f"{char} is allowed at the {'beginning' if char == '^' else 'end'} alone; "
                f"write \\{char} for the character"
            )
        if char == "{":
            self._refuse("this { is no count of repetitions; write \\{ for the character")
        self._at += 1
        if char == "[":
            return self._class()
        if char == ".":
            return TEXT
        if char == "\\":
            return self._escaped()
        return self._literal(char, self._at - 1)

    def _group(self) -> Node:
        start = self._at
        self._at += 1
        if self._accept("?") and not self._accept(":"):
            self._refuse("of groups with ? only (?:...) is allowed", start)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._refuse(f"groups are nested more than {MAX_DEPTH} levels deep", start)
        node = self._choice()
        if not self._accept(")"):
            self._refuse("this ( is never closed", start)
        self._depth -= 1
        return node

    def _repeated(self, node: Node) -> Node:
        char = self._next()
        if char and char in "*+?":
            self._at += 1
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        elif count := _COUNT.match(self._text, self._at):
            least = int(count[1])
            most = least if not count[2] else int(count[3]) if count[3] else None
            if max(least, most or 0) > MAX_REPEATS:
                self._refuse(f"at most {MAX_REPEATS} repetitions can be asked for")
            if most is not None and most < least:
                self._refuse(f"{most} is less than {least}")
            self._at = count.end()
        else:
            return node
        if (after := self._next()) and (after in "*+?" or _COUNT.match(self._text, self._at)):
            self._refuse("a repetition cannot be repeated, nor be lazy or possessive")
        return Repeat(node, least, most)

    def _class(self) -> Node:
        start = self._at - 1
        negated = self._accept("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or self._next() != "]":
            if not self._next():
                self._refuse("this [ is never closed", start)
            ranges += self._member()
            first = False
        self._at += 1
        some = chars(*ranges)
        members = without(TEXT, some) if negated else some
        if not members.ranges:
            self._refuse("no character is left in this class", start)
        return members

    def _member(self) -> tuple[tuple[int, int], ...]:
        start = self._at
        low = self._class_char()
        rest = self._text[self._at : self._at + 2]
        if len(low.ranges) != 1 or low.ranges[0][0] != low.ranges[0][1] or rest[:1] != "-":
            return low.ranges
        if rest in ("-]", "-"):
            return low.ranges
        self._at += 1
        high = self._class_char()
        code, last = low.ranges[0][0], high.ranges[0][0]
        if len(high.ranges) != 1 or high.ranges[0] != (last, last) or last < code:
            self._refuse("this is no range of characters", start)
        within = chars((code, last))
        if without(within, TEXT).ranges:
            self._refuse(_CONTROL, start)
        return within.ranges

    def _class_char(self) -> Chars:
        char = self._next()
        if not char:
            self._refuse("a class ends here that was not closed")
        self._at += 1
        return self._escaped() if char == "\\" else self._literal(char, self._at - 1)

    def _escaped(self) -> Chars:
        start = self._at - 1
        char = self._next()
        if not char:
            self._refuse("nothing follows this backslash", start)
        self._at += 1
        if char in _CLASSES:
            return _CLASSES[char]
        if digits := _CODE.get(char):
            code = self._text[self._at : self._at + digits]
            if len(code) < digits or not re.fullmatch("[0-9a-fA-F]+", code):
                self._refuse(f"\\{char} needs {digits} hexadecimal digits", start)
            self._at += digits
            if int(code, 16) > 0x10FFFF:
                self._refuse("there is no such character", start)
            return self._literal(chr(int(code, 16)), start)
        if char.isascii() and char.isalnum():
            self._refuse(_NAMED.get(char, f"\\{char} is not supported"), start)
        return self._literal(char, start)

    def _literal(self, char: str, start: int) -> Chars:
        if char not in TEXT:
            self._refuse(_CONTROL, start)
        return Chars(((ord(char), ord(char)),))

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _accept(self, char: str) -> bool:
        is_next = self._next() == char
        self._at += is_next
        return is_next

    def _refuse(self, why: str, at: int | None = None) -> NoReturn:
        at = self._at if at is None else at
        here = self._text[at : at + 20]
        where = f"at character {at + 1} ({here!r})" if here else "at its end"
        raise ConfigError(f"The regular expression {self._text!r:.200} is wrong {where}: {why}.")


_CONTROL = "an answer is one line: it holds no line break and no other control character"
_NAMED = {
    **dict.fromkeys("nrtfv0", _CONTROL),
    **dict.fromkeys("123456789", "references to groups are not regular"),
    **dict.fromkeys("bBAZz", "assertions are not supported here"),
}
