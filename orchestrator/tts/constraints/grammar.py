"""Grammars of whole outputs: rules by name, put together and written as EBNF. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tts.build.errors import ConfigError
from tts.engines.generate_request import MAX_GUIDE_BYTES as MAX_GUIDE_BYTES
from tts.engines.guide_grammar import check_grammar

from .counts import in_blocks
from .regular import (
    EMPTY,
    Choice,
    Node,
    Ref,
    Repeat,
    Seq,
    chars,
    chars_of,
    literal,
    optional,
    without,
)
from .step_grammar import ebnf

Rules = dict[str, Node]
"""The rules of a grammar by name; ROOT is where a text begins."""
ROOT = "root"
ANY = chars((0x9, 0xA), (0xD, 0xD), (0x20, 0xD7FF), (0xE000, 0x10FFFF))
"""The characters of free text."""


def renamed(rules: Rules, prefix: str) -> Rules:
    """The same rules with names that begin with `prefix`, beside those of other grammars."""
    return {prefix + name: _renamed(node, prefix) for name, node in rules.items()}


def _renamed(node: Node, prefix: str) -> Node:
    if isinstance(node, Seq):
        return Seq(tuple(_renamed(part, prefix) for part in node.parts))
    if isinstance(node, Choice):
        return Choice(tuple(_renamed(option, prefix) for option in node.options))
    if isinstance(node, Repeat):
        return Repeat(_renamed(node.node, prefix), node.least, node.most)
    return Ref(prefix + node.name) if isinstance(node, Ref) else node


def text_before(words: Sequence[str], name: str, after: Node) -> Rules:
    """Free text in which none of the words stands, up to the first of them, and then `after`.

    Without any of the words the text goes on to its end. The words begin with the same character,
    which stands nowhere else in them. The rule in which the text begins is `name`.
    """
    first = words[0][0]
    if any(not word or word[0] != first or first in word[1:] for word in words):
        raise ValueError(f"{words} do not begin with a character that is in no other place")
    free = Repeat(without(ANY, chars_of(first)), 0, None)
    rules: Rules = {}
    prefixes = {word[:length] for word in words for length in range(1, len(word))}
    names = {prefix: f"{name}{place}" for place, prefix in enumerate(sorted(prefixes), start=1)}

    def follow(read: str, char: str) -> Node:
        return Seq((literal(char), after if read + char in words else Ref(names[read + char])))

    rules[name] = Seq((free, optional(follow("", first))))
    for read, rule in names.items():
        nexts = sorted(
            {word[len(read)] for word in words if word.startswith(read) and word != read}
        )
        other = without(ANY, chars_of("".join([first, *nexts])))
        rules[rule] = Choice(
            (
                EMPTY,
                Seq((other, Ref(name))),
                *([] if first in nexts else [follow("", first)]),
                *(follow(read, char) for char in nexts),
            )
        )
    return rules


def require_end(rules: Rules) -> None:
    """Raise ConfigError unless a text of the grammar comes to an end."""
    ends: set[str] = set()
    known = -1
    while known < len(ends):  # most rules stand behind those that they use, so few rounds are left
        known = len(ends)
        for name, node in rules.items():
            if name not in ends and _ends(node, ends):
                ends.add(name)
    if ROOT not in ends:
        raise ConfigError(
            "The schema asks for a value without end: what it requires refers to itself.",
            hint="Make one of the properties on the way optional, or allow null.",
        )


def _ends(node: Node, known: set[str]) -> bool:
    if isinstance(node, Seq):
        return all(_ends(part, known) for part in node.parts)
    if isinstance(node, Choice):
        return any(_ends(option, known) for option in node.options)
    if isinstance(node, Repeat):
        return not node.least or _ends(node.node, known)
    return not isinstance(node, Ref) or node.name in known


def guide_text(rules: Rules) -> str:
    """A grammar as engines take it; raises ConfigError for one that they would refuse."""
    text = "".join(f"{name} ::= {ebnf(node)}\n" for name, node in in_blocks(rules).items())
    if len(text) > MAX_GUIDE_BYTES:
        raise ConfigError(
            f"The grammar of the form has {len(text):,} characters; engines take "
            f"{MAX_GUIDE_BYTES:,}.",
            hint="Ask for less: fewer properties, or shorter enumerations.",
        )
    try:
        check_grammar(text)
    except ValueError as error:
        raise ConfigError(f"The form makes a grammar that engines refuse: {error}.") from error
    return text
