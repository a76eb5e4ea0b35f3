"""Dialogues of one running text: a chat or plain text with the steps in it, cut at each score.

The published dialogue of Qwen2.5-Math-PRM is that of the card of Qwen/Qwen2.5-Math-PRM-7B: its chat
template around a system text, the question, and the steps with `<extra_0>` after each; scores are
read there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..errors import CheckpointError
from ..spec import VerifierRole
from ..tokenizer import Ids, Tokenizer
from .dialogue import head_kind, label_ids

DEFAULT_STEP_TAG = "ки"
QWEN_SYSTEM = r"Please reason step by step, and put your final answer within \boxed{}."
QWEN_MARKER = "<extra_0>"


@dataclass(frozen=True)
class RunningText:
    """A dialogue of one running text, as the pieces around the question and the steps.

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

    def decode(self, ids: Ids) -> str:
        """See VerifierDialogue."""
        return self.tokenizer.decode(ids.tolist())

    def first(self, question: str, step: str) -> Ids:
        """See VerifierDialogue."""
        asked = self.head + question + (self.join + step if step else "")
        return np.asarray([*self.bos, *self.tokenizer.encode(asked + self.answer)], dtype=np.int32)

    def extend(self, scored: Ids, step: str) -> Ids:
        """See VerifierDialogue."""
        return self.add_turn(scored, step) if step else scored

    def add_turn(self, scored: Ids, step: str) -> Ids:
        """See VerifierDialogue."""
        before, text = self.answer + self.label, self.turn + step + self.answer
        tail = [*self.label_ids, *self.tokenizer.encode_after(before, text)]
        return np.concatenate((scored, np.asarray(tail, dtype=np.int32)))


def rlhflow(tokenizer: Tokenizer, spec: VerifierRole) -> RunningText:
    """A chat, taken from the chat template: user turns are steps, assistant turns are labels.

    Refused if the template's text around a turn depends on what came before: then a longer dialogue
    would not extend a shorter one.
    """
    hint = "Verifiers with another dialogue: verifier.format custom (docs/reference/verifiers.md)."
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
    best, *_ = spec.labels
    return RunningText(
        tokenizer, answer, turn, head, label=best, label_ids=label_ids(tokenizer, spec.labels)[:1]
    )


def math_shepherd(tokenizer: Tokenizer, spec: VerifierRole) -> RunningText:
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
    return _checked(RunningText(tokenizer, f" {tag}", "\n", bos=bos), "verifier.step_tag")


def qwen_math_prm(tokenizer: Tokenizer, _spec: VerifierRole) -> RunningText:
    """A chat whose assistant turn is the steps, with a marker after each."""
    head = f"<|im_start|>system\n{QWEN_SYSTEM}<|im_end|>\n<|im_start|>user\n"
    join = "<|im_end|>\n<|im_start|>assistant\n"
    for token in ("<|im_start|>", "<|im_end|>", QWEN_MARKER):
        if len(ids := tokenizer.encode(token)) != 1:
            raise CheckpointError(
                f"{token!r} is {len(ids)} tokens in the tokenizer of {tokenizer.checkpoint}; "
                "verifier.format qwen2.5-math-prm needs it to be one.",
                hint="This format is for Qwen2.5-Math-PRM and what shares its tokenizer; others: "
                "verifier.format custom (docs/reference/verifiers.md).",
            )
    return RunningText(tokenizer, QWEN_MARKER, "", head, join)


def custom(tokenizer: Tokenizer, spec: VerifierRole) -> RunningText:
    """The dialogue that verifier.template describes."""
    template, head = spec.template, head_kind(tokenizer.checkpoint, spec)
    assert template is not None  # the spec requires it
    before, _, join = template.head.partition("{question}")
    turn = template.turn.removeprefix("{label}")
    form = RunningText(tokenizer, template.answer, turn, before, join)
    if head != "labels" and turn != template.turn:
        raise CheckpointError(
            f"verifier.template.turn begins with {{label}}, but {tokenizer.checkpoint} judges with "
            f"a {head} head, which has no labels.",
            hint="Take {label} out of verifier.template.turn.",
        )
    if head == "labels":
        best, *_ = spec.labels
        ids = label_ids(tokenizer, spec.labels)[:1]
    if turn != template.turn:
        form = replace(form, label=best, label_ids=ids)
    return _checked(form, "verifier.template")


def _checked(form: RunningText, field: str) -> RunningText:
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
