"""What an answer must look like: read, checked, and made into the guide of a request. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from tts.build.errors import ConfigError

from .boxable import require_boxable
from .regex import parse_regex
from .regular import Automaton, Node
from .schema import parse_schema
from .step_grammar import rule_after, step_grammar


@dataclass(frozen=True)
class AnswerConstraint:
    """The form that every answer of a run has."""

    node: Node
    _guides: dict[str, str] = field(default_factory=dict)
    """Grammars by the rule in which a text goes on: they are few, and sent many times."""

    def guide(self, before: str = "") -> str:
        """The grammar of what is generated after `before`, the text of the steps so far.

        Of `before` only what follows its last line break counts.
        """
        rule = rule_after(before)
        if rule not in self._guides:
            self._guides[rule] = step_grammar(self.node, rule)
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
    return AnswerConstraint(node)
