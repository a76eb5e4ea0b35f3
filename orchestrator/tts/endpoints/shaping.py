"""Changes to the distribution that tokens are drawn from, and their refusal by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from tts.base.errors import RequestRefused


@dataclass(frozen=True, slots=True)
class Shaping:
    """Changes to the distribution that tokens are drawn from, by the names that vLLM gives them.

    The defaults change nothing. Penalties look at what has been generated, `repetition_penalty` at
    the prompt, too.
    """

    min_tokens: int = 0
    """The end of the sequence and stop words are kept away for so many tokens."""
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_p: float = 0.0
    """Least probability of a token that may be drawn, as a part of the likeliest one's."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Numbers added to the logits of single tokens: each a token id and a number."""

    def changes(self) -> dict[str, Any]:
        """The fields that change something, with their values."""
        return {
            each.name: value
            for each in fields(self)
            if (value := getattr(self, each.name)) != each.default
        }


NO_PROMPTS = (
    "It gives no log-probabilities of a prompt; generators behind vLLM or SGLang do. Without "
    "logprobs the prompt is given back as text."
)


class FieldRefused(RequestRefused):
    """The engine cannot honour a field, which has the name that vLLM's API gives it."""

    def __init__(self, name: str, engine: str, hint: str | None = None) -> None:
        super().__init__(f"{name} is not supported by {engine}; leave it out.", hint)
        self.name = name


def refuse_top(top_log_probs: int, engine: str) -> None:
    """Raise FieldRefused for a call that asks for tokens which the engine has not drawn."""
    if top_log_probs:
        raise FieldRefused(
            "top_logprobs",
            engine,
            "It gives the log-probabilities of the tokens that it draws: a completion asks for "
            "them alone with logprobs 0.",
        )


def shaped(shaping: Shaping | None, possible: Iterable[str], engine: str) -> dict[str, Any]:
    """How a call changes the distribution; raises FieldRefused for what is not `possible`."""
    changes = {} if shaping is None else shaping.changes()
    for name in changes:
        if name not in possible:
            raise FieldRefused(
                name,
                engine,
                "Of what changes the distribution it takes "
                f"{', '.join(sorted(possible)) or 'nothing'}.",
            )
    return changes
