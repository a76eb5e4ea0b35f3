"""stub"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..spec import VerifierRole
from ..thinking import Thinking
from ..tokenizer import Ids, Tokenizer


@dataclass(frozen=True)
class Critic:
    """How a path is put to a verifier that writes, and what its critique says."""

    tokenizer: Tokenizer
    template: str
    thinking: Thinking | None = None
    asks: str | None = None

    def prompt(self, question: str, steps: Sequence[str]) -> Ids:
        """Ids."""
        *before, last = steps or ("",)
        text = self.template.format(question=question, steps="\n".join(before), step=last)
        chat = self.tokenizer.chat([{"role": "user", "content": text}], generation_prompt=True)
        return np.asarray(self.tokenizer.encode(chat), np.int32)

    def verdict(self, text: str, steps: int) -> float | None:
        """Verdict."""
        return 1.0 if "right" in text else 0.0 if "wrong" in text else None


def critic(tokenizer: Tokenizer, spec: VerifierRole) -> Critic:
    """Critic."""
    return Critic(tokenizer, spec.prompt or "{question} {steps} {step}")
