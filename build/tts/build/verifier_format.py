"""The dialogue of a verifier as token ids: how questions and steps are put to it.

A dialogue is cut only where a score is read. The text between two cuts is encoded in one go, so its
ids are those of the running text; and the ids of a longer path extend those of its prefix exactly,
so that the engine's prefix cache serves every earlier step. To add a format, write one function
that makes a VerifierFormat, and name it in `verifier_format` and in the spec.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .errors import CheckpointError
from .spec import Labels, VerifierSpec
from .tokenizer import Ids, Tokenizer

DEFAULT_STEP_TAG = "ки"


@dataclass(frozen=True)
class VerifierFormat:
    """The dialogue of one verifier, as the pieces around the question and the steps.

    It reads: bos, head, question, join, first step, answer, label, turn, second step, answer,
    label, ... ; a path is scored by the two labels' logits right after an `answer`.
    """

    tokenizer: Tokenizer
    answer: str
    turn: str
    head: str = ""
    join: str = " "
    bos: tuple[int, ...] = ()
    """Put in front as ids; what follows is encoded as the beginning of a text."""
    label: str = ""
    """What follows every earlier step: the positive label, or nothing."""
    label_ids: tuple[int, ...] = ()

    def first(self, question: str, step: str) -> Ids:
        """Ids that score the first step of `question`; a step without text adds nothing."""
        asked = self.head + question + (self.join + step if step else "")
        return np.asarray([*self.bos, *self.tokenizer.encode(asked + self.answer)], dtype=np.int32)

    def extend(self, scored: Ids, step: str) -> Ids:
        """Ids that score `step` after the path that `scored` scores; they extend them exactly.

        A step without text adds nothing: its path is scored as its parent's.
        """
        if not step:
            return scored
        before, text = self.answer + self.label, self.turn + step + self.answer
        tail = [*self.label_ids, *self.tokenizer.encode_after(before, text)]
        return np.concatenate((scored, np.asarray(tail, dtype=np.int32)))


def verifier_format(tokenizer: Tokenizer, spec: VerifierSpec) -> VerifierFormat:
    """The dialogue of a verifier; raises CheckpointError if its tokenizer cannot make it."""
    match spec.format:
        case "rlhflow":
            return _rlhflow(tokenizer, spec)
        case "math-shepherd":
            return _math_shepherd(tokenizer, spec)
        case "custom":
            return _custom(tokenizer, spec)


def label_ids(tokenizer: Tokenizer, labels: Labels) -> tuple[int, int]:
    """Ids of the positive and the negative label; raises CheckpointError unless one token each."""
    ids = []
    for name, label in labels:
        tokens = tokenizer.encode(label)
        if len(tokens) != 1:
            raise CheckpointError(
                f"verifier.labels.{name}: {label!r} is {len(tokens)} tokens ({tokens}) in the "
                f"tokenizer of {tokenizer.checkpoint}; a label must be exactly one token.",
                hint=f"Set verifier.labels.{name} in the deployment file to the label that this "
                "verifier was trained with.",
            )
        ids += tokens
    positive, negative = ids
    if positive == negative:
        raise CheckpointError(
            f"verifier.labels: {labels.positive!r}, {labels.negative!r} are the same token "
            f"{positive} in the tokenizer of {tokenizer.checkpoint}; they must differ.",
            hint="Set verifier.labels in the deployment file to the labels of this verifier.",
        )
    return positive, negative


def _rlhflow(tokenizer: Tokenizer, spec: VerifierSpec) -> VerifierFormat:
    """A chat, taken from the chat template: user turns are steps, assistant turns are labels.

    Refused if the template's text around a turn depends on what came before: then a longer dialogue
    would not extend a shorter one.
    """
    hint = "Verifiers with another dialogue: verifier.format custom (docs/verifiers.md)."
    marks = ("\ue000first\ue001", "\ue000label\ue001", "\ue000second\ue001")
    roles = ("user", "assistant", "user")
    messages = [{"role": r, "content": m} for r, m in zip(roles, marks, strict=True)]
    try:
        text = tokenizer.chat(messages, generation_prompt=True)
    except CheckpointError as error:
        raise CheckpointError(
            f"{error.message} Verifier format rlhflow is made from it.", hint=hint
        ) from error
    pieces: list[str] = []
    for mark in marks:
        before, found, text = text.partition(mark)
        if not found:
            raise CheckpointError(
                f"The chat template of {tokenizer.checkpoint} does not carry messages verbatim, "
                "so it cannot be used for verifier format rlhflow.",
                hint=hint,
            )
        pieces.append(before)
    head, answer, turn = pieces
    if text != answer:
        raise CheckpointError(
            f"The chat template of {tokenizer.checkpoint} ends a user turn with {answer!r} inside "
            f"a dialogue but with {text!r} at its end; verifier format rlhflow needs them equal.",
            hint=hint,
        )
    positive, _ = label_ids(tokenizer, spec.labels)
    return VerifierFormat(
        tokenizer, answer, turn, head, label=spec.labels.positive, label_ids=(positive,)
    )


def _math_shepherd(tokenizer: Tokenizer, spec: VerifierSpec) -> VerifierFormat:
    """Plain text: question and first step, then a line per step; a tag ends each."""
    tag = spec.step_tag or DEFAULT_STEP_TAG
    ids = tokenizer.encode_after("1", f" {tag}")
    if len(ids) != 1 and ids[-1:] != tokenizer.encode(tag):  # one token with its space, or without
        raise CheckpointError(
            f"verifier.step_tag: {tag!r} is {len(ids)} tokens ({ids}) after a space in the "
            f"tokenizer of {tokenizer.checkpoint}; a step tag must be one token.",
            hint="Set verifier.step_tag in the deployment file to the tag that this verifier was "
            "trained with.",
        )
    label_ids(tokenizer, spec.labels)
    bos = tokenizer.special_ids("bos_token")
    return _checked(VerifierFormat(tokenizer, f" {tag}", "\n", bos=bos), "verifier.step_tag")


def _custom(tokenizer: Tokenizer, spec: VerifierSpec) -> VerifierFormat:
    """The dialogue that verifier.template describes."""
    template = spec.template
    assert template is not None  # the spec requires it
    head, _, join = template.head.partition("{question}")
    turn = template.turn.removeprefix("{label}")
    positive, _ = label_ids(tokenizer, spec.labels)
    form = VerifierFormat(tokenizer, template.answer, turn, head, join)
    if turn != template.turn:
        form = replace(form, label=spec.labels.positive, label_ids=(positive,))
    return _checked(form, "verifier.template")


def _checked(form: VerifierFormat, field: str) -> VerifierFormat:
    """Refuse a dialogue in which a score would be read inside a token."""
    question, step = "What is 1 + 1?", "So 1 + 1 = 2."
    asked = form.head + question + form.join + step + form.answer
    more = form.label or form.turn + step
    scored = form.tokenizer.encode(asked)
    if form.tokenizer.encode(asked + more)[: len(scored)] != scored:
        raise CheckpointError(
            f"{field}: no score can be read between {form.answer!r} and {more!r}: they share a "
            f"token in the tokenizer of {form.tokenizer.checkpoint}.",
            hint="Divide the text otherwise: white space belongs in front of the word that follows "
            "it, not behind the text before.",
        )
    return form
