"""Dialogues of one running text: a chat or plain text with the steps in it, cut at each score.

The published dialogue of Qwen2.5-Math-PRM is that of the card of Qwen/Qwen2.5-Math-PRM-7B: its chat
template around a system text, the question, and the steps with `<extra_0>` after each; scores are
read there. The chat of question and answer is that of the cards of Skywork-Reward: rendered by the
chat template, scored at its last token. Texts that are encoded apart are those of `tokenize_row` of
TRL's PRMTrainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tts.base.errors import CheckpointError

from ..spec import VerifierRole
from ..tokenizer import Ids, Tokenizer
from .dialogue import ANY_WORD, VerifierDialogue, chat_pieces, head_kind, label_ids

DEFAULT_STEP_TAG = "ки"
QWEN_SYSTEM = r"Please reason step by step, and put your final answer within \boxed{}."
QWEN_MARKER = "<extra_0>"
_ANOTHER = "Verifiers with another dialogue: verifier.format custom (docs/reference/verifiers.md)."


@dataclass(frozen=True)
class RunningText(VerifierDialogue):
    """A dialogue of one running text, as the pieces around the question and the steps.

    It reads: bos, head, question, join, first step, answer, label, turn, second step, answer,
    label, ... ; a path is scored right after an `answer`. An answer that is read as one text stands
    in the first step's place, and nothing follows it.
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
    apart: bool = False
    """Whether each text and each step is encoded by itself."""

    def first(self, question: str, step: str) -> Ids:
        """See VerifierDialogue."""
        text = self.head + self._inert(question) + (self.join if step else "")
        return np.asarray([*self.bos, *self._encode(None, text, step)], dtype=np.int32)

    def add_turn(self, scored: Ids, step: str, number: int = 0) -> Ids:
        """See VerifierDialogue."""
        turn = self.turn.replace("{number}", str(number))
        tail = [*self.label_ids, *self._encode(self.answer + self.label, turn, step)]
        return np.concatenate((scored, np.asarray(tail, dtype=np.int32)))

    def _inert(self, text: str) -> str:
        around = self.head + self.join + self.answer + self.label + self.turn
        return self.tokenizer.inert(text, around)

    def _encode(self, before: str | None, text: str, step: str) -> list[int]:
        """A text, a step and `answer`, behind a text or at the beginning."""
        encode, step = self.tokenizer.encode, self._inert(step)
        if self.apart:
            return [token for part in (text, step, self.answer) for token in encode(part)]
        whole = text + step + self.answer
        return encode(whole) if before is None else self.tokenizer.encode_after(before, whole)


def rlhflow(tokenizer: Tokenizer, spec: VerifierRole) -> RunningText:
    """A chat, taken from the chat template: user turns are steps, assistant turns are labels.

    Refused if the template's text around a turn depends on what came before: then a longer dialogue
    would not extend a shorter one.
    """
    head, answer, turn, text = _around(
        tokenizer, ("user", "assistant", "user"), "rlhflow", generation_prompt=True
    )
    if text != answer:
        raise CheckpointError(
            f"The chat template of {tokenizer.checkpoint} ends a user turn with {answer!r} inside "
            f"a dialogue but with {text!r} at its end; verifier format rlhflow needs them equal.",
            hint=_ANOTHER,
        )
    (best, *_), ids = spec.labels, label_ids(tokenizer, spec.labels)[:1]
    return RunningText(tokenizer, answer, turn, head, label=best, label_ids=ids)


def math_shepherd(tokenizer: Tokenizer, spec: VerifierRole) -> RunningText:
    """Plain text: question and first step, then a line per step; a tag ends each."""
    tag = spec.step_tag or DEFAULT_STEP_TAG
    ids = tokenizer.encode_after(ANY_WORD, f" {tag}")
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


def chat(tokenizer: Tokenizer, _spec: VerifierRole) -> RunningText:
    """A chat of the question and the answer as the chat template renders it, read at its end."""
    head, join, end = _around(tokenizer, ("user", "assistant"), "chat", generation_prompt=False)
    starts = tokenizer.adds_bos and not head.startswith(tokenizer.special("bos_token"))
    bos = tokenizer.special_ids("bos_token") if starts else ()
    return RunningText(tokenizer, end, "", head, join, bos)


def custom(tokenizer: Tokenizer, spec: VerifierRole) -> RunningText:
    """The dialogue that verifier.template describes."""
    template, head = spec.template, head_kind(tokenizer.checkpoint, spec)
    assert template is not None  # the spec requires it
    before, _, join = template.head.partition("{question}")
    label_and_turn = template.turn or ""
    turn = label_and_turn.removeprefix("{label}")
    form = RunningText(tokenizer, template.answer, turn, before, join, apart=template.apart)
    if head != "labels" and turn != label_and_turn:
        raise CheckpointError(
            f"verifier.template.turn begins with {{label}}, but {tokenizer.checkpoint} judges with "
            f"a {head} head, which has no labels.",
            hint="Take {label} out of verifier.template.turn.",
        )
    if head == "labels":
        best, *_ = spec.labels
        ids = label_ids(tokenizer, spec.labels)[:1]
    if turn != label_and_turn:
        form = replace(form, label=best, label_ids=ids)
    return form if spec.reads_whole or template.apart else _checked(form, "verifier.template")


def _around(
    tokenizer: Tokenizer, roles: Sequence[str], form: str, *, generation_prompt: bool
) -> list[str]:
    """The chat template's texts around messages of these roles."""
    marks = [f"\ue000{role} {index}\ue001" for index, role in enumerate(roles)]
    messages = [{"role": r, "content": m} for r, m in zip(roles, marks, strict=True)]
    return chat_pieces(
        tokenizer,
        messages,
        marks,
        form,
        generation_prompt=generation_prompt,
        hints=(_ANOTHER, _ANOTHER),
    )


def _checked(form: RunningText, field: str) -> RunningText:
    """Refuse a dialogue in which a score would be read inside a token."""
    question, step = "What is 1 + 1?", "So 1 + 1 = 2."
    text = form.head + question + form.join + step + form.answer
    more = form.label or form.turn.replace("{number}", "2") + step
    scored = form.tokenizer.encode(text)
    if form.tokenizer.encode(text + more)[: len(scored)] != scored:
        raise CheckpointError(
            f"{field}: no score can be read between {form.answer!r} and {more!r}: they share a "
            f"token in the tokenizer of {form.tokenizer.checkpoint}.",
            hint="Divide the text otherwise: white space belongs in front of the word that follows "
            "it, not behind the text before.",
        )
    return form
