r"""The form of an answer, and the grammar of a step in which every box holds one. Pure.

EBNF as xgrammar reads it, which OpenVINO GenAI, TensorRT-LLM and vLLM carry, and llama.cpp, whose
names have no underscores. The whole output of a request has to follow it, so it describes the free
text, too. That text is right-linear: a rule for each place in the words that open a box.

    text ──\──► escape ──b──► \b ──o──► \bo ── ... ──► \boxed ──{──► answer ──}──► text

After `\boxed` and `\fbox` a brace must follow (TeX would take one letter or digit without), and an
escaped backslash opens nothing, as in `tts.grading.extract`. Each rule but the one before a brace
may end the output: at the end of the sequence, at a stop word, or at the request's limit.

A box ends at the brace that balances its own, and a step where its delimiter appears. A form that
allows either in the wrong place is refused, with a text of it that shows why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tts.base.errors import ConfigError
from tts.engines.generate_request import MAX_GUIDE_BYTES
from tts.engines.guide_grammar import check_grammar
from tts.engines.wire import EBNF, Guide

from .regex import parse_regex
from .regular import TEXT, Automaton, Chars, Choice, Node, Ref, Repeat, Seq, rules_of
from .schema import parse_schema

BOXES = ("\\boxed", "\\fbox")
TEXT_RULE = "text"
_ESCAPE_RULE = "escape"
_OPENING = re.compile(r"(?<!\\)(?:\\\\)*(\\[a-z]*)\Z")
"""A backslash that none escapes, and the letters behind it, at the end of a text."""
_BOX_RULE = "box"
_SPECIAL = {ord(char) for char in '"\\]^-['}
_UTF8_BLOCKS = (0x80, 0x800, 0x1000, 0xD000, 0xE000, 0x10000, 0x40000, 0x100000)
"""Where the bytes of UTF-8 change their number, or what may follow the first of them."""


def step_grammar(answer: Mapping[str, Node], start: str = TEXT_RULE) -> str:
    """The grammar of a text, from the rule `start` on, whose boxes follow the rules of `answer`."""
    rules = {
        "root": start,
        TEXT_RULE: f'[^\\\\]* ("\\\\" {_ESCAPE_RULE})?',
        _ESCAPE_RULE: _escape_rule(),
        **_letter_rules(),
        _BOX_RULE: f'"{{" answer "}}" {TEXT_RULE}',
        **{name: ebnf(node) for name, node in in_blocks(answer).items()},
    }
    return "".join(f"{name} ::= {rule}\n" for name, rule in rules.items())


def whole_grammar(rules: Mapping[str, Node]) -> str:
    """The grammar of an output that is a text of the rule `root`, and nothing else.

    Raises ConfigError for one that engines refuse.
    """
    rules = in_blocks(rules)
    text = "".join(f"{name} ::= {ebnf(rule)}\n" for name, rule in rules.items())
    if len(text) > MAX_GUIDE_BYTES:
        raise ConfigError(
            f"The grammar of the form has {len(text):,} characters; engines take "
            f"{MAX_GUIDE_BYTES:,}."
        )
    try:
        check_grammar(text)
    except ValueError as error:
        raise ConfigError(f"The form makes a grammar that engines refuse: {error}.") from error
    return text


def rule_after(text: str) -> str:
    """The rule in which a text goes on whose boxes are all closed.

    It depends on the end of the text alone: after a line break it is `TEXT_RULE`, unless a
    backslash escapes the break.
    """
    opening = _OPENING.search(text)
    if opening is None or not any(box.startswith(opening[1]) for box in BOXES):
        return TEXT_RULE
    return _rule(opening[1]) if len(opening[1]) > 1 else _ESCAPE_RULE


def _rule(read: str) -> str:
    """The rule that follows when this much of a box's word has been read."""
    return _BOX_RULE if read in BOXES else f"after{read[1:]}"


def _escape_rule() -> str:
    firsts = [box[1] for box in BOXES]
    starts = " | ".join(f'"{box[1]}" {_rule(box[:2])}' for box in BOXES)
    return f'"" | [^{"".join(firsts)}] {TEXT_RULE} | {starts}'


def _letter_rules() -> dict[str, str]:
    return {
        _rule(box[:length]): (
            f'"" | "\\\\" {_ESCAPE_RULE} | [^{box[length]}\\\\] {TEXT_RULE} | '
            f'"{box[length]}" {_rule(box[: length + 1])}'
        )
        for box in BOXES
        for length in range(2, len(box))
    }


def ebnf(node: Node) -> str:
    """A regular language as the right side of a rule."""
    if isinstance(node, Chars):
        if len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]:
            return f'"{_char(node.ranges[0][0])}"'
        ranges = (each for low, high in node.ranges for each in _utf8_blocks(low, high))
        texts = (_char(a) if a == b else f"{_char(a)}-{_char(b)}" for a, b in ranges)
        return f"[{''.join(texts)}]"
    if isinstance(node, Seq):
        return " ".join(_pieces(node)) or '""'
    if isinstance(node, Choice):
        return "(" + " | ".join(ebnf(option) for option in node.options) + ")"
    return node.name if isinstance(node, Ref) else _repeat(node)


def _pieces(node: Seq) -> list[str]:
    """The parts of a sequence; single characters in a row become one text."""
    pieces: list[str] = []
    text = ""
    for part in node.parts:
        if isinstance(part, Chars) and len(part.ranges) == 1 and len(set(part.ranges[0])) == 1:
            text += _char(part.ranges[0][0])
            continue
        if text:
            pieces.append(f'"{text}"')
            text = ""
        pieces.append(ebnf(part))
    return [*pieces, f'"{text}"'] if text else pieces


def _repeat(node: Repeat) -> str:
    inner = ebnf(node.node)
    if not isinstance(node.node, Chars | Choice | Ref):
        inner = f"({inner})"
    least, most = node.least, node.most
    if most == 0:
        return '""'
    if most is None and least < 2:
        return inner + "*+"[least]
    if (least, most) == (0, 1):
        return f"{inner}?"
    if most is None:
        return f"{inner}{{{least},}}"
    return f"{inner}{{{least},{most}}}"


def _utf8_blocks(low: int, high: int) -> Iterator[tuple[int, int]]:
    """A range in parts that UTF-8 spells alike.

    xgrammar takes wrong bytes for a range over several of them (with OpenVINO GenAI 2026.4), such
    as the first byte of a surrogate, after which it allows no token at all.
    """
    for begin in _UTF8_BLOCKS:
        if low < begin <= high:
            yield low, begin - 1
            low = begin
    yield low, high


def _char(code: int) -> str:
    if code in _SPECIAL or not 0x20 <= code < 0x7F:
        return f"\\U{code:08x}"  # of \\x xgrammar takes all hexadecimal digits that follow
    return chr(code)


BLOCK = 32
"""The widest choice of counts, and the longest sequence, that stays as it is.

xgrammar takes time in the square of a count: 13 s for a text of up to 1,000 characters, 0.2 s for
the same language in blocks of 32. So it does of the parts of a sequence: 22 s for `a?` 2,000 times,
and 3 s for each request that uses it; in blocks 4 ms (OpenVINO GenAI 2026.4, a vocabulary of 768).
"""


def in_blocks(rules: Mapping[str, Node]) -> dict[str, Node]:
    """Rules of the same language without wide repetitions: counts that differ by more than
    `BLOCK`, and without sequences of more parts than that, of which characters in a row are one.
    """
    added: dict[str, Node] = {}
    names: dict[Node, str] = {}

    def rule(node: Node) -> Ref:
        if node not in names:
            names[node] = f"count{len(names) + 1}"
            added[names[node]] = node
        return Ref(names[node])

    def of(node: Node) -> Node:
        if isinstance(node, Seq):
            parts = list(map(of, node.parts))
            while sum(not isinstance(part, Chars) for part in parts) > BLOCK:
                blocks = [parts[start : start + BLOCK] for start in range(0, len(parts), BLOCK)]
                parts = [rule(Seq(tuple(each))) for each in blocks]
            return Seq(tuple(parts))
        if isinstance(node, Choice):
            return Choice(tuple(map(of, node.options)))
        if not isinstance(node, Repeat):
            return node
        inner = of(node.node)
        if node.most is None or node.most - node.least <= BLOCK:
            return Repeat(inner, node.least, node.most)
        item = inner if isinstance(inner, Ref) else rule(inner)
        full, rest = divmod(node.most - node.least, BLOCK)
        block = rule(Repeat(item, BLOCK, BLOCK))
        wide = Choice(
            (
                Seq((Repeat(block, 0, full - 1), rule(Repeat(item, 0, BLOCK - 1)))),
                Seq((Repeat(block, full, full), rule(Repeat(item, 0, rest)))),
            )
        )
        return Seq((Repeat(item, node.least, node.least), wide)) if node.least else wide

    whole = {name: of(node) for name, node in rules.items()}
    return {**whole, **added}


@dataclass(frozen=True)
class AnswerConstraint:
    """The form that every answer of a run has."""

    rules: Mapping[str, Node]
    _guides: dict[str, Guide] = field(default_factory=dict)
    """Grammars by the rule in which a text goes on: they are few, and sent many times."""

    def guide(self, before: str = "") -> Guide:
        """The grammar of the text after `before`, of which only the last line counts."""
        rule = rule_after(before)
        if rule not in self._guides:
            self._guides[rule] = Guide(EBNF, step_grammar(self.rules, rule))
        return self._guides[rule]


@lru_cache(maxsize=64)  # a run sends the same few with every request; some take a while to check
def answer_constraint(
    regex: str | None, schema: str | None, delimiter: str
) -> AnswerConstraint | None:
    """The constraint of a run: a regular expression, or a JSON schema as text; None without one.

    Raises ConfigError for what is wrong with it, or that a box cannot hold, or that could hold the
    step `delimiter`.
    """
    if regex is None and schema is None:
        return None
    if regex is not None and schema is not None:
        raise ConfigError("answer_regex and answer_schema are both given; only one can hold.")
    node = parse_regex(regex) if regex is not None else parse_schema(schema or "")
    require_boxable(Automaton.of(node), delimiter)
    return AnswerConstraint({"answer": node} if regex is None else rules_of(node, "answer"))


MAX_BRACES = 16


def require_boxable(automaton: Automaton, delimiter: str) -> None:
    """Raise ConfigError if a text of the language would end its box, or a step at `delimiter`."""
    if (text := _unbalanced(automaton)) is not None:
        _refuse(
            text,
            "its braces do not balance, or it ends in a backslash: the box would end elsewhere",
            "Braces come in pairs; any text without them is [^{}\\\\ ][^{}\\\\]*.",
        )
    if (text := _holding(automaton, BOXES, "")) is not None:
        _refuse(text, "it opens a box of its own", "Describe what stands in the box alone.")
    if all(char in TEXT for char in delimiter):
        texts = [_holding(automaton, (delimiter,), f"{box}{{") for box in BOXES]
        if (text := next((each for each in texts if each is not None), None)) is not None:
            _refuse(
                text,
                f"the step would end inside of it, at the step delimiter {delimiter!r}",
                "Describe an answer without it, or change generator.step_delimiter.",
            )
    text = automaton.find(True, lambda blank, char: blank and char == " ", bool, " ")
    if text is not None:  # the grader strips spaces
        _refuse(
            text,
            "an empty box is no answer",
            "Begin with a character other than a space, as [^{}\\\\ ][^{}\\\\]* does.",
        )


def _unbalanced(automaton: Automaton) -> str | None:
    """A text whose braces, other than escaped ones, do not balance, or that ends escaping."""

    def follow(state: tuple[int, bool], char: str) -> tuple[int, bool] | None:
        depth, escaped = state
        if escaped:
            return depth, False
        depth += {"{": 1, "}": -1}.get(char, 0)
        return (depth, char == "\\") if 0 <= depth <= MAX_BRACES else None

    return automaton.find((0, False), follow, lambda state: state != (0, False), "{}\\")


def _holding(automaton: Automaton, words: tuple[str, ...], before: str) -> str | None:
    """A text that holds one of the words, itself or where it follows `before`."""

    def follow(before: str, char: str) -> str | None:
        text = before + char
        if any(word in text for word in words):
            return None
        # the longest end with which a word may have begun
        return next(
            text[place:]
            for place in range(len(text) + 1)
            if any(word.startswith(text[place:]) for word in words)
        )

    start = ""
    for char in before:
        after = follow(start, char)
        if after is None:
            return ""
        start = after
    return automaton.find(start, follow, lambda state: False, "".join(sorted({*"".join(words)})))


def _refuse(text: str, why: str, hint: str) -> None:
    raise ConfigError(
        f"The form of the answer allows {text!r:.200}, which cannot stand in \\boxed{{...}}: "
        f"{why}.",
        hint=hint,
    )
