"""Languages drawn by hypothesis, and texts of them."""

import random
from collections.abc import Mapping

from hypothesis import strategies as st

from tts.constraints.regular import (
    TEXT,
    Automaton,
    Chars,
    Choice,
    Node,
    Ref,
    Repeat,
    Seq,
    chars_of,
    literal,
)

LETTERS = "ab1 "


def nodes(alphabet: str = LETTERS) -> st.SearchStrategy[Node]:
    leaves = st.one_of(
        st.sets(st.sampled_from(alphabet), min_size=1).map(lambda some: chars_of("".join(some))),
        st.text(alphabet, max_size=3).map(literal),
        st.just(TEXT),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda parts: Seq(tuple(parts))),
            st.lists(inner, min_size=1, max_size=3).map(lambda options: Choice(tuple(options))),
            st.builds(repeat, inner, st.integers(0, 2), st.none() | st.integers(0, 2)),
        ),
        max_leaves=6,
    )


def repeat(node: Node, least: int, more: int | None) -> Repeat:
    return Repeat(node, least, None if more is None else max(least + more, 1))


def as_regex(node: Node) -> str:
    """In Python's notation."""
    if isinstance(node, Chars):
        return "[" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in node.ranges) + "]"
    if isinstance(node, Seq):
        return "".join(map(as_regex, node.parts))
    if isinstance(node, Choice):
        return "(?:" + "|".join(map(as_regex, node.options)) + ")"
    most = "" if node.most is None else node.most
    return f"(?:{as_regex(node.node)}){{{node.least},{most}}}"


def drawn(node: Node, choice: random.Random, rules: Mapping[str, Node] = {}) -> str:
    """A text of the language."""
    if isinstance(node, Ref):
        return drawn(rules[node.name], choice, rules)
    if isinstance(node, Chars):
        low, high = choice.choice(node.ranges)
        return chr(choice.randint(low, min(high, low + 100)))
    if isinstance(node, Seq):
        return "".join(drawn(part, choice, rules) for part in node.parts)
    if isinstance(node, Choice):
        return drawn(choice.choice(node.options), choice, rules)
    most = node.least + 3 if node.most is None else node.most
    count = choice.randint(node.least, most)
    return "".join(drawn(node.node, choice, rules) for _ in range(count))


def accepts(automaton: Automaton, text: str) -> bool:
    """Whether the language holds exactly this text."""
    return automaton.accept in states_after(automaton, text)


def states_after(automaton: Automaton, text: str) -> set[int]:
    """The states to which a text leads; none if no text of the language begins with it."""
    states = {0}
    for char in text:
        moves = [move for here in _with_skips(automaton, states) for move in automaton.moves[here]]
        states = {there for some, there in moves if char in some}
    return _with_skips(automaton, states)


def _with_skips(automaton: Automaton, states: set[int]) -> set[int]:
    rows = list(states)
    for here in rows:
        rows += [there for there in automaton.skips[here] if there not in rows]
    return set(rows)
