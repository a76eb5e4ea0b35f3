"""Which of several candidates is the answer: by votes, or by the verifier's scores. Pure.

First it is decided whether tools are called, then which calls, or which text: equal ones add up.
Calls are equal if their names and arguments are, whatever the order of keys.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tts.grading import extract_answer

from ..openai.messages import ToolCall


@dataclass(frozen=True)
class DrawnAnswer:
    """One whole answer of the model."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    score: float | None = None
    tokens: int = 0
    """Tokens of the answer, without its thinking."""
    cut: bool = False
    """Whether the limit of its tokens ended it, or it never came to its answer."""
    reasoning: str = ""
    """The thinking before it."""

    @property
    def key(self) -> str:
        """A value that equal candidates share."""
        if self.calls:
            return "\n".join(map(canonical, self.calls))
        try:
            return json.dumps(json.loads(self.text), sort_keys=True)
        except (ValueError, RecursionError):
            return extract_answer(self.text) or self.text.strip()


def canonical(call: ToolCall) -> str:
    """A call as it is compared and counted."""
    arguments = json.loads(call.function.arguments)
    return f"{call.function.name}({json.dumps(arguments, sort_keys=True, ensure_ascii=False)})"


@dataclass(frozen=True)
class Vote:
    """The outcome: the place of the winner, and what each key has gathered."""

    winner: int
    weights: dict[str, float]


def vote(candidates: Sequence[DrawnAnswer]) -> Vote:
    """The best candidate of the key with most weight; of equal weights the first.

    A candidate weighs its score, or one where there are no scores.
    """
    weights = [1.0 if each.score is None else each.score for each in candidates]
    calling = sum(w for w, each in zip(weights, candidates, strict=True) if each.calls)
    calls = calling > sum(weights) - calling
    if not any(weights):
        calls = bool(candidates[0].calls)
    voters = [place for place, each in enumerate(candidates) if bool(each.calls) == calls]
    keys = {place: candidates[place].key for place in voters}
    totals = dict.fromkeys(keys.values(), 0.0)
    for place, key in keys.items():
        totals[key] += weights[place]
    best = max(totals, key=lambda key: totals[key])
    places = (place for place, key in keys.items() if key == best)
    return Vote(max(places, key=lambda place: weights[place]), totals)
