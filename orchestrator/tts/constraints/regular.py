"""Regular languages as trees, the automata that recognise them, and their rules. Pure.

A language is made of character sets, sequences, choices and repetitions. An automaton has states
0, 1, ...; from each lead moves, which take one character of a set, and skips, which take none.

Engines read a text at once in all ways that a grammar allows. Repetitions inside each other, or
many in a row, can be read in so many that one token takes seconds, for all requests of the engine
(`(?:[a-z]{1,40}){1,40}`: 0.6 s a token after thirty). A deterministic automaton reads in one way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from tts.base.errors import ConfigError

MAX_STATES = 20_000
"""Most states of an automaton: more take seconds to check, and to compile in the engine."""

Ranges = tuple[tuple[int, int], ...]
"""Pairs of the first and the last code point of a range; sorted, with gaps between them."""
Tracked = TypeVar("Tracked")


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    ranges: Ranges

    def __contains__(self, char: str) -> bool:
        return any(low <= ord(char) <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class Seq:
    """One part after the other; without parts the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the options, at least one."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A node from `least` to `most` times; None: any number of times."""

    node: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Ref:
    """A rule of a grammar, by its name: what makes a language more than regular."""

    name: str


Node = Chars | Seq | Choice | Repeat | Ref
EMPTY = Seq(())


def chars(*ranges: tuple[int, int]) -> Chars:
    """The characters of these ranges, which may overlap."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return Chars(tuple(joined))


def chars_of(text: str) -> Chars:
    """One of the characters of `text`."""
    return chars(*((ord(char), ord(char)) for char in text))


def without(some: Chars, others: Chars) -> Chars:
    """The characters of `some` that are not among `others`."""
    rest: list[tuple[int, int]] = []
    for low, high in some.ranges:
        for taken_low, taken_high in others.ranges:
            if taken_high < low or taken_low > high:
                continue
            if taken_low > low:
                rest.append((low, taken_low - 1))
            low = taken_high + 1
        if low <= high:
            rest.append((low, high))
    return Chars(tuple(rest))


# No control characters: an answer is one line, and a line break may end a step. No spaces but the
# common one, which look like it. No halves of surrogate pairs, which are no characters.
_LEFT_OUT = (
    *((0x7F, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F)),
    *((0x205F, 0x205F), (0x3000, 0x3000), (0xD800, 0xDFFF)),
)
TEXT = without(chars((0x20, 0x10FFFF)), chars(*_LEFT_OUT))
"""Every character that an answer may hold."""


def literal(text: str) -> Node:
    """Exactly this text."""
    return Seq(tuple(Chars(((ord(char), ord(char)),)) for char in text))


def expanded(node: Node) -> int:
    """How many characters a language is described by with every repetition written out."""
    if isinstance(node, Seq | Choice):
        return sum(map(expanded, node.parts if isinstance(node, Seq) else node.options))
    if isinstance(node, Repeat):
        return max(node.least, node.most or 1) * max(1, expanded(node.node))
    return 1


def optional(node: Node) -> Node:
    """A node, or nothing."""
    return Repeat(node, 0, 1)


@dataclass
class Automaton:
    """What recognises a language: text that leads from state 0 to state `accept`."""

    moves: list[list[tuple[Chars, int]]] = field(default_factory=list)
    skips: list[list[int]] = field(default_factory=list)
    accept: int = 0

    @classmethod
    def of(cls, node: Node) -> Automaton:
        """The automaton of a language; raises ConfigError if it is too large."""
        automaton = cls()
        start = automaton._new()
        automaton.accept = automaton._add(node, start)
        return automaton

    def find(
        self,
        start: Tracked,
        follow: Callable[[Tracked, str], Tracked | None],
        is_wrong: Callable[[Tracked], bool],
        telling: str,
    ) -> str | None:
        """A shortest text that breaks a rule, or None if the language keeps it.

        `follow` takes what is known of a text one character further; None says that no
        continuation can be right. `is_wrong` judges the end of a text of the language. Characters
        that are not `telling` are all alike to the rule.
        """
        visited = {(0, start)}
        rows: list[tuple[int, Tracked, str]] = [(0, start, "")]
        ends = self._shortest_ends()
        for here, state, text in rows:
            if here == self.accept and is_wrong(state):
                return text
            for there in self.skips[here]:
                if (there, state) not in visited:
                    visited.add((there, state))
                    rows.append((there, state, text))
            for some, there in self.moves[here]:
                for char in _representatives(some, telling):
                    after = follow(state, char)
                    if after is None:
                        return text + char + ends[there]
                    if (there, after) not in visited:
                        visited.add((there, after))
                        rows.append((there, after, text + char))
        return None

    def reached(self, states: Iterable[int]) -> frozenset[int]:
        """The states that skips alone lead to from these, which are among them."""
        reached = set(states)
        rows = [*reached]
        for here in rows:
            for there in self.skips[here]:
                if there not in reached:
                    reached.add(there)
                    rows.append(there)
        return frozenset(reached)

    def _new(self) -> int:
        if len(self.moves) >= MAX_STATES:
            raise ConfigError(
                f"The form of the answer is too large: its automaton has over {MAX_STATES:,} "
                "states.",
                hint="Repeat less, or leave the number of repetitions open (* or +).",
            )
        self.moves.append([])
        self.skips.append([])
        return len(self.moves) - 1

    def _add(self, node: Node, start: int) -> int:
        """The state in which a text of `node` that began in `start` ends."""
        if isinstance(node, Chars):
            end = self._new()
            self.moves[start].append((node, end))
            return end
        if isinstance(node, Seq):
            for part in node.parts:
                start = self._add(part, start)
            return start
        if isinstance(node, Choice):
            end = self._new()
            for option in node.options:
                begin = self._new()
                self.skips[start].append(begin)
                self.skips[self._add(option, begin)].append(end)
            return end
        if isinstance(node, Ref):
            raise TypeError(f"rule {node.name} of a grammar is in no automaton")
        return self._add_repeat(node, start)

    def _add_repeat(self, node: Repeat, start: int) -> int:
        for _ in range(node.least):
            start = self._add(node.node, start)
        end = self._new()
        self.skips[start].append(end)
        if node.most is None:
            loop = self._new()  # of its own: what leads back here must not lead back further
            self.skips[start].append(loop)
            after = self._add(node.node, loop)
            self.skips[after] += [loop, end]
            return end
        for _ in range(node.most - node.least):
            begin = self._new()
            self.skips[start].append(begin)
            start = self._add(node.node, begin)
            self.skips[start].append(end)
        return end

    def _shortest_ends(self) -> list[str]:
        """A text that leads to the end, for each state; every state has one."""
        ends: list[str | None] = [None] * len(self.moves)
        before: list[list[tuple[int, str]]] = [[] for _ in self.moves]
        for here, (moves, skips) in enumerate(zip(self.moves, self.skips, strict=True)):
            for some, there in moves:
                before[there].append((here, _representatives(some, "")[0]))
            for there in skips:
                before[there].append((here, ""))
        ends[self.accept] = ""
        rows = [self.accept]
        for there in rows:
            for here, char in before[there]:
                if ends[here] is None:
                    ends[here] = char + (ends[there] or "")
                    rows.append(here)
        return [end or "" for end in ends]


def _representatives(some: Chars, telling: str) -> list[str]:
    """One character for each way in which a rule may take a character of the set."""
    chars = [char for char in telling if char in some]
    rest = without(some, chars_of(telling)) if telling else some
    if rest.ranges:
        chars.insert(0, next((char for char in "0a" if char in rest), chr(rest.ranges[0][0])))
    return chars


PLAIN_REPEATS = 4
"""Repetitions in one expression, none inside another, that engines read well as they are."""
MAX_RULES = 2_000
"""Most states of a deterministic one: an engine reads their rules for each request, in 50 ms."""
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
    """The rules of a regular language, from `name` on; ConfigError: too many ways to read it."""
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
        if len(names) > MAX_RULES or work > MAX_WORK:
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
