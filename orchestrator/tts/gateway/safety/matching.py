r"""Finding every match of many rules in a text that comes in parts. Pure, in linear time.

All rules are searched at once by one automaton, made from those of the rules as the text needs it
(lazily, as in RE2). A step takes one character, whatever the rules are: no expression can make it
try again (backtrack). Besides the states that are possible here, the automaton knows for each where
the match that leads there would begin; of several beginnings the first is kept, as it covers the
others. So it knows at any time

- which text is part of a match: the union of all matches, overlapping ones as one;
- which text may still become part of one: all from the earliest beginning on. It is held back.

Steps are kept, so most characters cost one look-up. A text made to need ever new ones, many states
each, is refused when it has cost half a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tts.build.errors import ConfigError, ContentBlocked
from tts.constraints.regex import Search
from tts.constraints.regular import Automaton, Chars, Choice, Node, Seq

REDACTED = "[redacted]"
"""What stands in the place of text that was removed."""
MAX_LENGTH = 1000
"""Characters of a match: as many may be held back."""
MAX_MOVES = 200_000
"""From state to state, of all rules together."""
MAX_WORK = 2_000_000
"""Moves that may be looked at to make the steps of one text: some 0.5 s."""
_MAX_CACHED = 8_000_000
"""Words of memory for states and steps that are kept; then they are made anew."""
_FEW = 64
"""Characters of a set that is found by each of them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What to find, and whether it blocks the text or is redacted."""

    name: str
    search: Search
    blocks: bool


Groups = tuple[frozenset[int], ...]
"""Possible states, those with the same beginning together; the earliest beginning first."""


@dataclass(slots=True, eq=False)
class _State:
    groups: Groups
    after_word: bool
    """Whether the last character belongs to a word."""
    live: int | None
    """The first group whose match may still come about, or be longer."""
    steps: dict[str, _Step] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Step:
    """What one character does."""

    to: _State
    kept: slice | tuple[int, ...] | None
    """Which groups live on; None: all of them."""
    begins: bool
    """Whether a group is added that begins with this character."""
    ended_before: int | None
    """The earliest group with a match to redact that ended before this character."""
    ended_with: int | None
    """The same among the groups of `to`, for a match that ends with this character."""
    blocked: str | None
    """The rule that blocks the text here."""


@dataclass(frozen=True, slots=True)
class _Move:
    """A move of a rule's automaton, with what it can reach without a character."""

    chars: Chars
    ignores_case: bool
    targets: tuple[int, ...]

    def takes(self, char: str) -> bool:
        if not self.ignores_case:
            return char in self.chars
        return any(form in self.chars for form in _forms(char))


@dataclass(frozen=True, slots=True)
class _Entry:
    """How a match begins."""

    move: _Move
    begins_word: bool


class Matcher:
    """The automaton of some rules, shared by all texts. Raises ConfigError if a rule is too large.

    For one thread.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._moves: list[tuple[_Move, ...]] = []
        self._work: list[int] = []
        """What it takes to leave each state."""
        self._ends: dict[int, Rule] = {}
        """The rules that end in a state."""
        self._few: dict[str, list[_Entry]] = {}
        """Beginnings by their first character, folded."""
        self._many: list[_Entry] = []
        self._size = 0
        for rule in rules:
            self._add(rule)
        self._states: dict[tuple[Groups, bool], _State] = {}
        self._groups: dict[frozenset[int], frozenset[int]] = {}
        self._cached = 0
        self.start = self._state((), False)

    def step(self, state: _State, char: str) -> _Step:
        """Make the step that a character takes from a state, and keep it there."""
        if self._cached >= _MAX_CACHED:
            self._forget()
        self._cached += 16
        step = state.steps[char] = self._make_step(state, char)
        return step

    def work(self, state: _State) -> int:
        """What it takes to make a step from a state."""
        return 1 + sum(self._work[each] for group in state.groups for each in group)

    def at_end(self, state: _State) -> tuple[int | None, str | None]:
        """What the end of the text does: `ended_before` and `blocked`, as of a step."""
        return self._ended(state.groups, state.after_word)

    def _add(self, rule: Rule) -> None:
        search = rule.search
        length = longest(search.node)
        if length is None or length > MAX_LENGTH:
            raise ConfigError(
                f"The filter rule {rule.name!r:.100} can match "
                f"{'a text of any length' if length is None else f'{length:,} characters'}; "
                f"at most {MAX_LENGTH:,} can be held back.",
                hint="Say how often something may repeat: {1,100} in place of + or *.",
            )
        automaton = Automaton.of(search.node)
        first = len(self._moves)
        reach = [_reachable(automaton, state) for state in range(len(automaton.moves))]
        if automaton.accept in reach[0]:
            raise ConfigError(
                f"The filter rule {rule.name!r:.100} matches the empty text, which is everywhere.",
                hint="Let it have a character at least.",
            )
        for moves in automaton.moves:
            made = tuple(
                _Move(
                    chars,
                    search.ignores_case,
                    tuple(
                        first + target
                        for target in reach[there]
                        if automaton.moves[target] or target == automaton.accept
                    ),
                )
                for chars, there in moves
            )
            self._moves.append(made)
            self._work.append(1 + sum(len(move.targets) for move in made))
            self._size += self._work[-1]
            if self._size > MAX_MOVES:
                raise ConfigError(
                    f"The filter rules are too large: {rule.name!r:.100} and those before it have "
                    f"over {MAX_MOVES:,} moves between states.",
                    hint="Leave some out, or repeat less.",
                )
        self._ends[first + automaton.accept] = rule
        for state in reach[0]:
            for move in self._moves[first + state]:
                self._begin_with(_Entry(move, search.begins_word))

    def _begin_with(self, entry: _Entry) -> None:
        ranges = entry.move.chars.ranges
        if sum(high - low + 1 for low, high in ranges) > _FEW:
            self._many.append(entry)
            return
        for folded in {_folded(chr(c)) for low, high in ranges for c in range(low, high + 1)}:
            self._few.setdefault(folded, []).append(entry)

    def _state(self, groups: Groups, after_word: bool) -> _State:
        key = (groups, after_word)
        if known := self._states.get(key):
            return known
        live = next((i for i, group in enumerate(groups) if any(map(self._goes_on, group))), None)
        self._cached += 24 + len(groups)
        self._states[key] = state = _State(groups, after_word, live)
        return state

    def _group(self, states: Iterable[int]) -> frozenset[int]:
        """These states; the same object each time, as most groups are in many states."""
        group = frozenset(states)
        if known := self._groups.get(group):
            return known
        self._cached += 32 + 4 * len(group)
        self._groups[group] = group
        return group

    def _goes_on(self, state: int) -> bool:
        """Whether the next character matters: it is part of the match, or tells its end."""
        return bool(self._moves[state]) or self._ends[state].search.ends_word

    def _forget(self) -> None:
        for state in self._states.values():
            state.steps.clear()
        self._states = {(self.start.groups, self.start.after_word): self.start}
        self._groups = {}
        self._cached = 0

    def _make_step(self, state: _State, char: str) -> _Step:
        in_word = is_word(char)
        at_boundary = in_word != state.after_word
        ended_before, blocked = self._ended(state.groups, at_boundary)
        seen: set[int] = set()
        groups: list[frozenset[int]] = []
        kept: list[int] = []
        for index, group in enumerate(state.groups):
            if reached := self._after(group, char) - seen:
                kept.append(index)
                groups.append(self._group(reached))
                seen |= reached
        begun = {
            target
            for entry in (*self._few.get(_folded(char), ()), *self._many)
            if (at_boundary or not entry.begins_word) and entry.move.takes(char)
            for target in entry.move.targets
        } - seen
        if begun:
            groups.append(self._group(begun))
        ended_with = None
        for index, group in enumerate(groups):
            for rule in self._rules_ending(group, needs_boundary=False):
                if rule.blocks:
                    blocked = blocked or rule.name
                elif ended_with is None:
                    ended_with = index
        return _Step(
            self._state(tuple(groups), in_word),
            None if len(kept) == len(state.groups) else _compact(kept),
            bool(begun),
            ended_before,
            ended_with,
            blocked,
        )

    def _ended(self, groups: Groups, at_boundary: bool) -> tuple[int | None, str | None]:
        """Matches that had to wait for what follows: the first to redact, and one that blocks."""
        redacts, blocks = None, None
        if at_boundary:
            for index, group in enumerate(groups):
                for rule in self._rules_ending(group, needs_boundary=True):
                    if rule.blocks:
                        blocks = blocks or rule.name
                    elif redacts is None:
                        redacts = index
        return redacts, blocks

    def _rules_ending(self, group: Iterable[int], needs_boundary: bool) -> list[Rule]:
        found = [self._ends[state] for state in sorted(group) if state in self._ends]
        return [rule for rule in found if rule.search.ends_word is needs_boundary]

    def _after(self, group: Iterable[int], char: str) -> set[int]:
        return {
            target
            for state in group
            for move in self._moves[state]
            if move.takes(char)
            for target in move.targets
        }


class Matching:
    """One text on its way through the rules: a stream of `filters`.

    What comes before a match that blocks is still given out; the next call raises ContentBlocked.
    So all that is given out does not depend on how the text was cut.
    """

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._state = matcher.start
        self._held = ""
        """The text that was not given out yet."""
        self._begin = 0
        """The place of its first character in the whole text."""
        self._at = 0
        """The place of the next character."""
        self._beginnings: list[int] = []
        """Where the match of each group of the state begins."""
        self._found: list[tuple[int, int]] = []
        """What is to be redacted in the held text, from and to; apart, in order."""
        self._blocked: str | None = None
        self._work = 0

    def feed(self, text: str) -> str:
        """Take the next part; what is certain not to belong to a match, or a mark in its place."""
        self._raise_if_blocked()
        self._held += text
        state, at = self._state, self._at
        for char in text:
            step = state.steps.get(char) or self._new_step(state, char)
            beginnings = self._beginnings
            if step.blocked is not None:
                self._blocked = step.blocked
                break
            if step.ended_before is not None:
                self._redact(beginnings[step.ended_before], at)
            if step.kept is not None:
                beginnings = self._beginnings = _chosen(beginnings, step.kept)
            if step.begins:
                beginnings.append(at)
            at += 1
            state = step.to
            if step.ended_with is not None:
                self._redact(beginnings[step.ended_with], at)
        self._state, self._at = state, at
        return self._give_out(at if state.live is None else self._beginnings[state.live])

    def end(self) -> str:
        """The text is complete: what was held back."""
        self._raise_if_blocked()
        redacts, self._blocked = self._matcher.at_end(self._state)
        self._raise_if_blocked()
        if redacts is not None:
            self._redact(self._beginnings[redacts], self._at)
        return self._give_out(self._at)

    def _new_step(self, state: _State, char: str) -> _Step:
        self._work += self._matcher.work(state)
        if self._work > MAX_WORK:
            raise ContentBlocked("The content filter refuses this text: it takes too long to read.")
        return self._matcher.step(state, char)

    def _redact(self, begin: int, end: int) -> None:
        while self._found and self._found[-1][1] > begin:
            begin = min(begin, self._found.pop()[0])
        self._found.append((begin, end))

    def _give_out(self, limit: int) -> str:
        """The held text up to `limit`, but no part of a match that goes on behind it."""
        given: list[str] = []
        at = self._begin
        left = []
        for begin, end in self._found:
            if end <= limit:
                given += (self._held[at - self._begin : begin - self._begin], REDACTED)
                at = end
            else:
                left.append((begin, end))
        limit = min(limit, left[0][0]) if left else limit
        given.append(self._held[at - self._begin : limit - self._begin])
        self._held = self._held[limit - self._begin :]
        self._begin = limit
        self._found = left
        return "".join(given)

    def _raise_if_blocked(self) -> None:
        if self._blocked is not None:
            raise ContentBlocked(f"The content filter refuses this text (rule {self._blocked!r}).")


def _compact(indices: list[int]) -> slice | tuple[int, ...]:
    """Indices in order, as a slice if they have no gaps: the first groups are what ends first."""
    if indices and indices[-1] - indices[0] == len(indices) - 1:
        return slice(indices[0], indices[-1] + 1)
    return tuple(indices)


def _chosen(beginnings: list[int], kept: slice | tuple[int, ...]) -> list[int]:
    return beginnings[kept] if isinstance(kept, slice) else [beginnings[i] for i in kept]


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


def is_word(char: str) -> bool:
    """Whether a character is part of a word, as `re` has it."""
    return char.isalnum() or char == "_"


def _reachable(automaton: Automaton, state: int) -> list[int]:
    """A state, and those that it leads to without a character."""
    found = [state]
    seen = {state}
    for here in found:
        for there in automaton.skips[here]:
            if there not in seen:
                seen.add(there)
                found.append(there)
    return found


def _folded(char: str) -> str:
    """One form for upper and lower case of a character."""
    upper = char.upper()
    lower = (upper if len(upper) == 1 else char).lower()
    return lower if len(lower) == 1 else char


def _forms(char: str) -> set[str]:
    """A character in upper and in lower case."""
    return {char} | {
        form
        for form in (char.lower(), char.upper())
        if len(form) == 1 and _folded(form) == _folded(char)
    }
