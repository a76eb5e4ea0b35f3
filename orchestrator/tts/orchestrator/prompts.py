"""Prompts as token ids: the generator's chat prompt and the verifier's dialogue.

Both only ever grow: the ids of a longer path extend those of its prefix exactly, so that an
engine's prefix cache serves every earlier step. Separators and labels are appended as ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tts.build.errors import CheckpointError
from tts.build.spec import GeneratorSpec, VerifierSpec
from tts.build.tokenizer import Tokenizer

Ids = npt.NDArray[np.int32]


def generator_prompt(tokenizer: Tokenizer, spec: GeneratorSpec, question: str) -> Ids:
    """Token ids of the chat prompt that asks `question`, int32 [length]."""
    system = [{"role": "system", "content": spec.system_prompt}] if spec.system_prompt else []
    messages = [*system, {"role": "user", "content": question}]
    text = tokenizer.chat(messages, generation_prompt=True)
    return np.asarray(tokenizer.encode(text), dtype=np.int32)


@dataclass(frozen=True)
class VerifierFormat:
    """The RLHFlow dialogue of one verifier, as the pieces between the texts.

    Layout: head, question and first step, answer, label, turn, second step, answer, label, ... ;
    a path is scored by the two labels' logits right after an `answer` piece. Earlier steps carry
    the positive label.
    """

    tokenizer: Tokenizer
    head: tuple[int, ...]
    answer: tuple[int, ...]
    turn: tuple[int, ...]
    positive: int

    def first(self, question: str, step: str) -> Ids:
        """Ids that score the first step of `question`."""
        text = f"{question} {step}" if step else question
        return self._ids(self.head, self.tokenizer.encode(text), self.answer)

    def extend(self, scored: Ids, step: str) -> Ids:
        """Ids that score `step` after the path that `scored` scores; they extend them exactly.

        A step without text adds nothing: its path is scored as its parent's.
        """
        if not step:
            return scored
        tail = self._ids((self.positive,), self.turn, self.tokenizer.encode(step), self.answer)
        return np.concatenate((scored, tail))

    @staticmethod
    def _ids(*pieces: Sequence[int]) -> Ids:
        return np.asarray([token for piece in pieces for token in piece], dtype=np.int32)


def rlhflow_format(tokenizer: Tokenizer, spec: VerifierSpec) -> VerifierFormat:
    """Cut a chat template into the pieces of the RLHFlow dialogue.

    Raises CheckpointError if a label is not one token, or if the template's text around a turn
    depends on what came before (then a longer dialogue would not extend a shorter one).
    """
    marks = ("\ue000first\ue001", "\ue000label\ue001", "\ue000second\ue001")
    roles = ("user", "assistant", "user")
    messages = [{"role": r, "content": m} for r, m in zip(roles, marks, strict=True)]
    text = tokenizer.chat(messages, generation_prompt=True)
    pieces: list[str] = []
    for mark in marks:
        before, found, text = text.partition(mark)
        if not found:
            raise CheckpointError(
                f"The chat template of {tokenizer.checkpoint} does not carry messages verbatim, "
                "so it cannot be used for verifier format rlhflow."
            )
        pieces.append(before)
    head, answer, turn = pieces
    if text != answer:
        raise CheckpointError(
            f"The chat template of {tokenizer.checkpoint} ends a user turn with {answer!r} inside "
            f"a dialogue but with {text!r} at its end; verifier format rlhflow needs them equal."
        )
    return VerifierFormat(
        tokenizer,
        tuple(tokenizer.encode(head)),
        tuple(tokenizer.encode(answer)),
        tuple(tokenizer.encode(turn)),
        tokenizer.token_id(spec.labels.positive),
    )
