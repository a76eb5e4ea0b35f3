"""Regular languages as deterministic automata, and these as rules of a grammar. Pure.

Engines read a text at once in all ways that a grammar allows. Repetitions inside each other, or
many in a row, can be read in so many that one token takes seconds, for all requests of the engine
(`(?:[a-z]{1,40}){1,40}`: 0.6 s a token after thirty). A deterministic automaton reads in one way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from tts.base.errors import ConfigError

from .regular import EMPTY, Automaton, Chars, Choice, Node, Ranges, Ref, Repeat, Seq

PLAIN_REPEATS = 4
"""Repetitions in one expression, none inside another, that engines read well as they are."""
MAX_STATES = 2_000
"""Most states: an engine reads their rules for each request, in 50 ms."""
MAX_WORK = 150_000
"""States of the first automaton in those of the other, in all: half a second."""


def is_plain(node: Node) -> bool:
    """Whether engines read a language quickly as it is written."""
    depths = list(_repeats(node, 0))
    return len(depths) <= PLAIN_REPEATS and not any(depths)


def _repeats(node: Node, depth: int) -> Iterator[int]:
    """How many repetitions of variable length are around each such repetition."""
    if isinstance(node, Repeat):
        varies = node.least != node.most
        if varies:
            yield depth
        yield from _repeats(node.node, depth + varies)
    elif isinstance(node, Seq | Choice):
        for part in node.parts if isinstance(node, Seq) else node.options:
            yield from _repeats(part, depth)


def rules_of(node: Node, name: str) -> dict[str, Node]:
    """The rules of a regular language; the first has this name, with which the others begin.

    Raises ConfigError for one that can be read in too many ways.
    """
    return {name: node} if is_plain(node) else _deterministic(Automaton.of(node), name)


def _deterministic(automaton: Automaton, name: str) -> dict[str, Node]:
    start = automaton.reached({0})
    names = {start: name}
    rows, rules, work = [start], dict[str, Node](), 0
    for here in rows:
        options: list[Node] = []
        for there, ranges in _moves(automaton, here).items():
            if there not in names:
                names[there] = f"{name}state{len(names)}"
                rows.append(there)
            work += len(there)
            options.append(Seq((Chars(ranges), Ref(names[there]))))
        if automaton.accept in here:
            options.append(EMPTY)
        rules[names[here]] = Choice(tuple(options))
        if len(names) > MAX_STATES or work > MAX_WORK:
            raise ConfigError(
                "The repetitions of the regular expression can be read in too many ways for an "
                "engine.",
                hint="Repeat less, or have what is repeated end in a character of its own.",
            )
    return rules


def _moves(automaton: Automaton, here: Iterable[int]) -> dict[frozenset[int], Ranges]:
    """The characters that lead from a set of states to another."""
    moves = [
        (low, high + 1, there)
        for state in here
        for chars, there in automaton.moves[state]
        for low, high in chars.ranges
    ]
    cuts = sorted({cut for low, end, _ in moves for cut in (low, end)})
    events: dict[int, list[tuple[int, int]]] = {cut: [] for cut in cuts}
    for low, end, there in moves:
        events[low].append((1, there))
        events[end].append((-1, there))
    conflicts: dict[frozenset[int], list[tuple[int, int]]] = {}
    counts: dict[int, int] = {}
    closures: dict[frozenset[int], frozenset[int]] = {}
    for low, end in pairwise(cuts):
        for change, there in events[low]:
            counts[there] = counts.get(there, 0) + change
        targets = frozenset(there for there, count in counts.items() if count)
        if not targets:
            continue
        if targets not in closures:
            closures[targets] = automaton.reached(targets)
        ranges = conflicts.setdefault(closures[targets], [])
        if ranges and ranges[-1][1] == low - 1:
            low = ranges.pop()[0]
        ranges.append((low, end - 1))
    return {there: tuple(ranges) for there, ranges in conflicts.items()}
