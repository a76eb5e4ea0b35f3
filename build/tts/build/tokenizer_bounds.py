"""What a tokenizer.json may ask for: no text grown without bounds, no pattern that never ends.

The library runs in this process, where nothing can interrupt it. Oniguruma, its regular
expressions, gives up a single match after ten million steps; these checks refuse, before any text
is read, what would reach that at once, and what would fill the memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .input_files import Unreadable

MOST_GROWTH = 100
"""Characters that may become of one, by all replacements one after the other."""
MANY = 10
"""Repetitions up to which a bounded one counts as none."""
# an escape, an escape's name in braces included; or any one character
_TOKEN = re.compile(
    r"\\[pPx]\{[^}]*\}|\\[gk](?:<[^>]*>|'[^']*')|\\.|\(\?#[^)]*\)|\{\d*(?:,\d*)?\}|.", re.DOTALL
)
_COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")


def require_bounded(part: Any) -> None:
    """Check a part of a tokenizer, such as its normalizer, as JSON; raises Unreadable."""
    growth = 1
    for step in _objects(part):
        pattern = step.get("pattern")
        given = pattern if isinstance(pattern, dict) else {}
        expression, literal = given.get("Regex"), given.get("String")
        if isinstance(expression, str) and repeats_a_repetition(expression):
            raise Unreadable(
                f"its pattern {expression!r:.200} repeats what repeats already, which may take a "
                "time without bounds"
            )
        content = step.get("content")
        if isinstance(content, str):
            growth *= max(1, -(-len(content) // max(1, len(literal or ""))))
    if growth > MOST_GROWTH:
        raise Unreadable(
            f"its replacements make up to {growth:,} characters of one; at most {MOST_GROWTH} are "
            "sensible"
        )


def _objects(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _objects(inner)


def repeats_a_repetition(expression: str) -> bool:
    r"""Whether a group with a repetition in it is itself repeated, as in `(a+)+`, or calls itself.

    Such a pattern may try a text in exponentially many ways. Ones with bounds below MANY, as in
    `(\d{3})*`, do not count.
    """
    groups = [False]  # for each open group, whether it holds a repetition
    inner = False  # whether the last item does
    brackets = 0
    for match in _TOKEN.finditer(expression):
        token = match.group()
        if brackets or token == "[":
            brackets += (token == "[") - (token == "]")
            inner = False
        elif token == "(":
            groups.append(False)
        elif token == ")" and len(groups) > 1:
            inner = groups.pop()
            groups[-1] |= inner
        elif token.startswith("\\g"):
            return True
        elif _is_repetition(token):
            if inner:
                return True
            groups[-1] = True  # and `inner` stays: a second sign makes the first lazy or possessive
        elif token != "?":
            inner = False
    return False


def _is_repetition(token: str) -> bool:
    if token in ("*", "+"):
        return True
    count = _COUNT.fullmatch(token)
    if count is None:
        return False
    least, comma, most = count.groups()
    return int(most or least or 0) >= MANY if most or not comma else True
