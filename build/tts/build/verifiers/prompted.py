"""A verifier that was never trained to be one: an instruct model, asked whether a step is right.

The prompt is the deployment's, with few-shot text of its own, and goes through the checkpoint's
chat template as one user turn. Its places come in the order {question}, {steps}, {step}:

    few-shot text, question | first step | second step | ... | last step | is it right? | answer

The text between {steps} and {step} is put between any two steps. So everything up to the last step
extends what the path above it was asked with, and the engine's KV cache serves it; only the text
behind {step} is asked anew for each score. To keep that exact the text is cut, and encoded piece by
piece, at each bar. The score is read from the labels' logits, as with a verifier that was trained
on labels. Where the text behind {step} asks about several criteria, one after the other, there is
one request for each, which all share the path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tts.base.errors import CheckpointError, ConfigError

from ..spec import PROMPT_PLACES, VerifierRole
from ..thinking import thinks_first
from ..tokenizer import Ids, Tokenizer
from .dialogue import chat_pieces, label_ids

_MARKS = ("\ue000question\ue001", "\ue000steps\ue001", "\ue000step\ue001")
_ANY_WORD = "1"
"""Text put in front of a piece while it is encoded: alone, the piece might begin with another
token."""


@dataclass(frozen=True)
class Prompted:
    """A prompt around a path; see VerifierDialogue, whose methods these are."""

    tokenizer: Tokenizer
    head: str
    """From the beginning of the chat to the question."""
    join: str
    """Between the question and the first step."""
    between: str
    """Between any two steps."""
    answer: str
    """The text after the last step: the question about it, up to where its answer begins."""
    answers: tuple[tuple[int, ...], ...]
    """Its ids, for each criterion; a path is scored with the first."""

    @property
    def answer_ids(self) -> tuple[int, ...]:
        """The ids after the last step."""
        return self.answers[0]

    def decode(self, ids: Ids) -> str:
        """See VerifierDialogue."""
        return self.tokenizer.decode(ids.tolist())

    def by_criterion(self, scored: Ids) -> list[Ids]:
        """The dialogues that ask about the same path, one for each criterion."""
        path = scored[: len(scored) - len(self.answer_ids)]
        return [np.concatenate((path, np.asarray(ids, np.int32))) for ids in self.answers]

    def first(self, question: str, step: str) -> Ids:
        """See VerifierDialogue."""
        question, step = map(self.tokenizer.inert, (question, step))
        ids = self.tokenizer.encode(self.head + question + self.join + step)
        return np.asarray([*ids, *self.answer_ids], dtype=np.int32)

    def extend(self, scored: Ids, step: str, _number: int = 0) -> Ids:
        """See VerifierDialogue; what asks about the parent's step gives way to the new step."""
        return self.add_turn(scored, step) if step else scored

    def add_turn(self, scored: Ids, step: str, _number: int = 0) -> Ids:
        """See VerifierDialogue."""
        path = scored[: len(scored) - len(self.answer_ids)]
        new = self.tokenizer.encode_after(_ANY_WORD, self.between + self.tokenizer.inert(step))
        return np.concatenate((path, np.asarray([*new, *self.answer_ids], dtype=np.int32)))


def prompted(tokenizer: Tokenizer, spec: VerifierRole) -> Prompted:
    """The dialogue of an instruct model that is asked with the deployment's prompt.

    Raises CheckpointError for a checkpoint without a chat template, for one whose template changes
    the prompt, and where the answer would share a token with the text before it.
    """
    if spec.prompt is None:
        raise ConfigError(
            f"The prompt of {spec.prompt_file} has not been read.",
            hint="Load the deployment from its file, or give verifier.prompt, its text.",
        )
    label_ids(tokenizer, spec.labels)
    content, (label, *_) = spec.prompt, spec.labels
    for place, mark in zip(PROMPT_PLACES, _MARKS, strict=False):  # the criterion stays a place
        content = content.replace(place, mark)
    chat = [{"role": "user", "content": content}]
    head, join, between, text = chat_pieces(
        tokenizer,
        chat,
        _MARKS,
        spec.format,
        generation_prompt=True,
        hints=(
            "Set verifier.checkpoint to an instruct model: it answers questions in a chat.",
            "Spell the chat out with verifier.format custom (docs/reference/verifiers.md).",
        ),
    )
    if thinks_first(tokenizer, chat):
        raise CheckpointError(
            f"The chat template of {tokenizer.checkpoint} has the model think before it answers, "
            f"so verifier format {spec.format} would read its labels where the thinking begins.",
            hint="Switch it off with verifier.chat_template_kwargs: {enable_thinking: false}."
            if "enable_thinking" in tokenizer.chat_variables
            else "Take another model, or spell the chat out with verifier.format custom.",
        )
    answers = [text.replace(PROMPT_PLACES[-1], each) for each in spec.criteria or ("",)]
    questions = [tokenizer.encode_after(_ANY_WORD, answer) for answer in answers]
    for answer, ids in zip(answers, questions, strict=True):
        if tokenizer.encode_after(_ANY_WORD, answer + label)[: len(ids)] != ids:
            raise CheckpointError(
                f"verifier.prompt: no answer can be read between {text[-40:]!r} and {label!r}: "
                f"they share a token in the tokenizer of {tokenizer.checkpoint}.",
                hint="Set verifier.labels to words that this model begins an answer with.",
            )
    return Prompted(tokenizer, head, join, between, answers[0], tuple(map(tuple, questions)))
