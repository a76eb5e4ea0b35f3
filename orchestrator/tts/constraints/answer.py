"""The form of an answer: read, checked, and made into the guide of a request. Pure.

A box ends at the brace that balances its own (`tts.grading.extract`), and a step where its
delimiter appears: an answer that could hold either in the wrong place would not come out as it was
generated. Such a form is refused, with a text of it that shows why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tts.base.errors import ConfigError
from tts.engines.wire import EBNF, Guide

from .deterministic import rules_of
from .regex import parse_regex
from .regular import TEXT, Automaton, Node
from .schema import parse_schema
from .step_grammar import BOXES, rule_after, step_grammar


@dataclass(frozen=True)
class AnswerConstraint:
    """The form that every answer of a run has."""

    rules: Mapping[str, Node]
    _guides: dict[str, Guide] = field(default_factory=dict)
    """Grammars by the rule in which a text goes on: they are few, and sent many times."""

    def guide(self, before: str = "") -> Guide:
        """The grammar of the text after `before`, the steps so far.

        Of `before` only what follows its last line break counts.
        """
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
"""Most braces inside each other in an answer."""


def require_boxable(automaton: Automaton, delimiter: str) -> None:
    """Raise ConfigError if some text of the language would not be the answer of its box.

    `delimiter` is the generator's step delimiter.
    """
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
    if (text := _blank(automaton)) is not None:
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


def _blank(automaton: Automaton) -> str | None:
    """A text of nothing but spaces, as the grader strips them."""
    return automaton.find(
        True, lambda is_blank, char: is_blank and char == " ", lambda is_blank: is_blank, " "
    )


def _refuse(text: str, why: str, hint: str) -> None:
    raise ConfigError(
        f"The form of the answer allows {text!r:.200}, which cannot stand in \\boxed{{...}}: "
        f"{why}.",
        hint=hint,
    )
