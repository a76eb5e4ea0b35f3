r"""Checking a grammar before the pipeline sees it. Pure.

A grammar that does not compile fails in a step of the pipeline, and with it every other request. So
what a request brings is read here first: the core of EBNF as xgrammar takes it, one rule per line.

    NAME ::= CHOICE            CHOICE = SEQUENCE | SEQUENCE | ...     SEQUENCE = PIECE PIECE ...
    PIECE = ATOM, ATOM*, ATOM+, ATOM?, ATOM{m}, ATOM{m,} or ATOM{m,n}
    ATOM = "text", [class], [^class], NAME or ( CHOICE )
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

MAX_DEPTH = 60
"""Parentheses inside each other."""
MAX_SIZE = 100_000
"""Atoms of a grammar with every repetition written out, of a group those of its parts."""

_ESCAPE = r'\\(?:["\\\]\[^nrt-]|x[0-9a-fA-F]{2}(?![0-9a-fA-F])|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})'
_CHAR = rf"(?:[^\\\]\[\n]|{_ESCAPE})"
_TOKEN = re.compile(
    rf'(?P<text>"(?:[^"\\\n]|{_ESCAPE})*")|(?P<set>\[\^?(?:{_CHAR})+\])'
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<count>\{\d{1,6}(?:,\d{0,6})?\})|(?P<sign>[()|*+?])"
)
_RULE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*) ::= ")
_RANGE = re.compile(rf"({_ESCAPE}|[^\\])-({_ESCAPE}|[^\\\]])")


def check_grammar(text: str) -> None:
    """Raise ValueError naming the line and column of what is wrong with a grammar."""
    rules: dict[str, _Rule] = {}
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        head = _RULE.match(line)
        if head is None:
            raise ValueError(f"line {number} does not begin with a rule's name and ::=")
        if head["name"] in rules:
            raise ValueError(f"line {number} defines {head['name']} again")
        rules[head["name"]] = _Reader(line, head.end(), number).rule()
    if "root" not in rules:
        raise ValueError("it has no rule root")
    for name, rule in rules.items():
        for other in rule.names:
            if other not in rules:
                raise ValueError(f"rule {name} uses {other}, which is not defined")
    if sum(rule.size for rule in rules.values()) > MAX_SIZE:
        raise ValueError(f"with its repetitions written out it has more than {MAX_SIZE:,} parts")
    _refuse_left_recursion(rules)


@dataclass
class _Part:
    """The facts about a part of a rule: how it can begin, and how large it is."""

    can_be_empty: bool = False
    firsts: frozenset[str] = frozenset()
    """Rules with which it may begin; those after a rule are among them, in case it is empty."""
    size: int = 1


@dataclass
class _Rule:
    """A rule, as far as the check needs it."""

    firsts: frozenset[str]
    size: int
    names: set[str] = field(default_factory=set)
    """Every rule that it uses."""


class _Reader:
    """One rule's right side."""

    def __init__(self, line: str, at: int, number: int) -> None:
        self._line = line
        self._at = at
        self._number = number
        self._depth = 0
        self._names: set[str] = set()

    def rule(self) -> _Rule:
        part = self._choice()
        if self._at < len(self._line):
            self._refuse("nothing can stand here")
        return _Rule(part.firsts, part.size, self._names)

    def _choice(self) -> _Part:
        options = [self._sequence()]
        while self._taken("|"):
            options.append(self._sequence())
        return _Part(
            any(option.can_be_empty for option in options),
            frozenset().union(*(option.firsts for option in options)),
            sum(option.size for option in options),
        )

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self._at < len(self._line) and self._line[self._at] not in "|)":
            parts.append(self._piece())
            while self._line[self._at : self._at + 1] == " ":
                self._at += 1
        if not parts:
            self._refuse('an empty option is written ""')
        firsts: set[str] = set()
        for part in parts:
            firsts |= part.firsts
            if not part.can_be_empty and not part.firsts:
                break
        return _Part(
            all(part.can_be_empty for part in parts),
            frozenset(firsts),
            sum(part.size for part in parts),
        )

    def _piece(self) -> _Part:
        atom = self._atom()
        token = _TOKEN.match(self._line, self._at)
        if token is None or not (token["count"] or token[0] in "*+?"):
            return atom
        self._at = token.end()
        least, most = {"*": (0, 1), "+": (1, 1), "?": (0, 1)}.get(token[0], (0, 1))
        if token["count"]:
            low, comma, high = token[0][1:-1].partition(",")
            least = int(low)
            most = int(high) if high else max(least, 1) if comma else least
            if most < least or most == 0:
                self._refuse(f"{token[0]} is no number of repetitions")
        size = atom.size * most
        if size > MAX_SIZE:
            self._refuse(f"this is repeated to more than {MAX_SIZE:,} parts")
        return _Part(atom.can_be_empty or least == 0, atom.firsts, size)

    def _atom(self) -> _Part:
        start = self._at
        token = _TOKEN.match(self._line, start)
        if token is None or not (token["text"] or token["set"] or token["name"] or token[0] == "("):
            self._refuse("a text, a class, a rule or ( was expected")
        self._at = token.end()
        if token["text"]:
            return _Part(can_be_empty=token["text"] == '""')
        if token["set"]:
            self._check_ranges(token["set"], start)
            return _Part()
        if token["name"]:
            self._names.add(token["name"])
            return _Part(firsts=frozenset({token["name"]}))
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._refuse(f"parentheses are nested more than {MAX_DEPTH} levels deep")
        part = self._choice()
        if not self._taken(")"):
            self._refuse("a ) was expected")
        self._depth -= 1
        return part

    def _check_ranges(self, text: str, start: int) -> None:
        for low, high in _RANGE.findall(text.strip("[]").removeprefix("^")):
            if _code(high) < _code(low):
                self._at = start
                self._refuse(f"{low}-{high} is no range")

    def _taken(self, sign: str) -> bool:
        while self._line[self._at : self._at + 1] == " ":
            self._at += 1
        if self._line[self._at : self._at + 1] != sign:
            return False
        self._at += 1
        while self._line[self._at : self._at + 1] == " ":
            self._at += 1
        return True

    def _refuse(self, why: str) -> NoReturn:
        raise ValueError(f"line {self._number}, column {self._at + 1}: {why}")


def _code(char: str) -> int:
    """The code point of a character of a class, as it is written there."""
    if char[0] != "\\" or len(char) == 1:
        return ord(char)
    if char[1] in "xuU":
        return int(char[2:], 16)
    return ord({"n": "\n", "r": "\r", "t": "\t"}.get(char[1], char[1]))


def _refuse_left_recursion(rules: dict[str, _Rule]) -> None:
    """Raise ValueError for a rule that may begin with itself, on whatever way: it never ends."""
    finished: set[str] = set()
    for start in rules:
        path: list[tuple[str, list[str]]] = [(start, sorted(rules[start].firsts))]
        here = {start}
        while path:
            name, rest = path[-1]
            if not rest:
                path.pop()
                here.discard(name)
                finished.add(name)
                continue
            following = rest.pop()
            if following in here:
                raise ValueError(f"rule {following} may begin with itself")
            if following not in finished:
                here.add(following)
                path.append((following, sorted(rules[following].firsts)))
