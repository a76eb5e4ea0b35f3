"""The dialogue of Skywork-o1-Open-PRM: lines, each encoded by itself.

It is that of `prepare_input` in SkyworkAI/skywork-o1-prm-inference, with step_token a newline: the
beginning-of-sequence token's text, the question and a newline; then every line with a newline token
after it; scores are read there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tts.base.errors import CheckpointError

from ..spec import VerifierRole
from ..tokenizer import Ids, Tokenizer
from .dialogue import VerifierDialogue


@dataclass(frozen=True)
class Lines(VerifierDialogue):
    """A question, then the lines of the steps, each encoded by itself and ended by one token."""

    tokenizer: Tokenizer
    bos: str
    """The text of the token in front of the question."""
    line_end: int
    answer: str = "\n"

    def first(self, question: str, step: str) -> Ids:
        """See VerifierDialogue."""
        prompt = self.tokenizer.encode(f"{self.bos}{self.tokenizer.inert(question)}\n")
        return self.extend(np.asarray(prompt, dtype=np.int32), step)

    def add_turn(self, scored: Ids, step: str, number: int = 0) -> Ids:
        """See VerifierDialogue. A step of several lines is scored at the end of its last one."""
        lines = self.tokenizer.inert(step).split("\n")
        ids = [[*self.tokenizer.encode(line), self.line_end] for line in lines]
        return np.concatenate((scored, *(np.asarray(line, dtype=np.int32) for line in ids)))


def skywork_prm(tokenizer: Tokenizer, _spec: VerifierRole) -> Lines:
    """Question and steps as lines."""
    bos, ends = tokenizer.special("bos_token"), tokenizer.encode("\n")
    if not bos or len(ends) != 1:
        what = "newline is not one token" if bos else "tokenizer_config.json names no bos_token"
        raise CheckpointError(
            f"{tokenizer.checkpoint}: {what}; verifier.format skywork-o1-prm needs it.",
            hint="This format is for Skywork-o1-Open-PRM; others: verifier.format custom "
            "(docs/reference/verifiers.md).",
        )
    return Lines(tokenizer, bos, ends[0])
