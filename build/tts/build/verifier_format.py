"""The dialogue of a verifier as token ids: how questions and steps are put to it.

A dialogue is cut only where a score is read. The text between two cuts is encoded in one go, so its
ids are those of the running text; and the ids of a longer path extend those of its prefix exactly,
so that the engine's prefix cache serves every earlier step (of format prompted: all but the end,
which asks about the last step). To add a format, write one function that makes a VerifierFormat,
and name it in `verifier_format` and in the spec.

The published dialogues of verifiers with a head of their own, and where they are from:

- qwen2.5-math-prm: the card of Qwen/Qwen2.5-Math-PRM-7B. Its chat template around a system text,
  the question, and the steps with `<extra_0>` after each; scores are read there.
- skywork-o1-prm: `prepare_input` of SkyworkAI/skywork-o1-prm-inference, with step_token a newline.
  The beginning-of-sequence token's text, the question and a newline; then every line encoded by
  itself with a newline token after it; scores are read there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from .checkpoint_files import read_json_object
from .errors import CheckpointError, ConfigError
from .model_config import read_model_config
from .spec import HeadKind, Labels, VerifierSpec
from .tokenizer import Ids, Tokenizer
from .verifier_head import HEAD_COLUMNS, HEADED
from .verifier_likelihood import continuation
from .verifier_prompted import Prompted, prompted

DEFAULT_STEP_TAG = "ки"
QWEN_SYSTEM = r"Please reason step by step, and put your final answer within \boxed{}."
QWEN_MARKER = "<extra_0>"
_FOR_LABELS = ("rlhflow", "math-shepherd", "custom", "prompted", "likelihood")
_FOR_HEADS = ("qwen2.5-math-prm", "skywork-o1-prm", "custom")


class VerifierFormat(Protocol):
    """How a path is put to a verifier; the last token is where its last step is scored."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The verifier's."""

    @property
    def answer(self) -> str:
        """The text after a step, up to where its score is read."""

    def decode(self, ids: Ids) -> str:
        """The text of a part of a dialogue, without special tokens."""

    def first(self, question: str, step: str) -> Ids:
        """Ids that score the first step of `question`; a step without text adds nothing."""

    def extend(self, scored: Ids, step: str) -> Ids:
        """Ids that score `step` after the path that `scored` scores; they extend them exactly.

        Of format prompted, all but the end of `scored`, which asks about its own step. A step
        without text adds nothing: its path is scored as its parent's.
        """

    def add_turn(self, scored: Ids, step: str) -> Ids:
        """Likewise with a turn of its own also for a step without text."""


@dataclass(frozen=True)
class Dialogue:
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
        """See VerifierFormat."""
        return self.tokenizer.decode(ids.tolist())

    def first(self, question: str, step: str) -> Ids:
        """See VerifierFormat."""
        asked = self.head + question + (self.join + step if step else "")
        return np.asarray([*self.bos, *self.tokenizer.encode(asked + self.answer)], dtype=np.int32)

    def extend(self, scored: Ids, step: str) -> Ids:
        """See VerifierFormat."""
        return self.add_turn(scored, step) if step else scored

    def add_turn(self, scored: Ids, step: str) -> Ids:
        """See VerifierFormat."""
        before, text = self.answer + self.label, self.turn + step + self.answer
        tail = [*self.label_ids, *self.tokenizer.encode_after(before, text)]
        return np.concatenate((scored, np.asarray(tail, dtype=np.int32)))


@dataclass(frozen=True)
class Lines:
    """A question, then the lines of the steps, each encoded by itself and ended by one token."""

    tokenizer: Tokenizer
    bos: str
    """The text of the token in front of the question."""
    line_end: int
    answer: str = "\n"

    def decode(self, ids: Ids) -> str:
        """See VerifierFormat."""
        return self.tokenizer.decode(ids.tolist())

    def first(self, question: str, step: str) -> Ids:
        """See VerifierFormat."""
        asked = self.tokenizer.encode(f"{self.bos}{question}\n")
        return self.extend(np.asarray(asked, dtype=np.int32), step)

    def extend(self, scored: Ids, step: str) -> Ids:
        """See VerifierFormat."""
        return self.add_turn(scored, step) if step else scored

    def add_turn(self, scored: Ids, step: str) -> Ids:
        """See VerifierFormat. A step of several lines is scored at the end of its last one."""
        lines = [[*self.tokenizer.encode(line), self.line_end] for line in step.split("\n")]
        return np.concatenate((scored, *(np.asarray(line, dtype=np.int32) for line in lines)))


def verifier_format(tokenizer: Tokenizer, spec: VerifierSpec) -> VerifierFormat:
    """The dialogue of a verifier.

    Raises CheckpointError if its tokenizer cannot make it, or if the format does not go with what
    the verifier judges with.
    """
    head = head_kind(tokenizer.checkpoint, spec)
    allowed = _FOR_LABELS if head == "labels" else _FOR_HEADS
    if spec.format not in allowed:
        raise CheckpointError(
            f"verifier.format is {spec.format!r}, but {tokenizer.checkpoint} judges with "
            + ("labels" if head == "labels" else f"a {head} head")
            + f"; formats for that: {', '.join(allowed)}.",
            hint="Set verifier.format in the deployment file (docs/verifiers.md).",
        )
    match spec.format:
        case "rlhflow":
            return _rlhflow(tokenizer, spec)
        case "math-shepherd":
            return _math_shepherd(tokenizer, spec)
        case "qwen2.5-math-prm":
            return _qwen_math_prm(tokenizer)
        case "skywork-o1-prm":
            return _skywork_prm(tokenizer)
        case "custom":
            return _custom(tokenizer, spec, head)
        case "prompted":
            return _prompted(tokenizer, spec)
        case "likelihood":
            vocab_size = read_model_config(tokenizer.checkpoint).vocab_size
            return continuation(tokenizer, spec.system_prompt, vocab_size)


def column_tokens(tokenizer: Tokenizer, spec: VerifierSpec) -> tuple[int, int]:
    """The ids of the labels, or 0 and 1 where no labels are read; raises CheckpointError."""
    if spec.format == "likelihood" or head_kind(tokenizer.checkpoint, spec) != "labels":
        return HEAD_COLUMNS
    return label_ids(tokenizer, spec.labels)


def head_kind(checkpoint: Path, spec: VerifierSpec) -> HeadKind:
    """What the deployment states, or else what config.json names, or labels without either."""
    file = checkpoint / "config.json"
    if spec.head is not None or not file.is_file():
        return spec.head or "labels"
    named = read_json_object(file).get("architectures")
    for architecture, (_, head) in HEADED.items():
        if named == [architecture]:
            return head.kind
    return "labels"


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


def _rlhflow(tokenizer: Tokenizer, spec: VerifierSpec) -> Dialogue:
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
    return Dialogue(
        tokenizer, answer, turn, head, label=spec.labels.positive, label_ids=(positive,)
    )


def _prompted(tokenizer: Tokenizer, spec: VerifierSpec) -> Prompted:
    """An instruct model, asked with the deployment's prompt."""
    if spec.prompt is None:
        raise ConfigError(
            f"The prompt of {spec.prompt_file} has not been read.",
            hint="Load the deployment from its file, or give verifier.prompt, its text.",
        )
    label_ids(tokenizer, spec.labels)
    return prompted(tokenizer, spec.prompt, spec.labels.positive)


def _math_shepherd(tokenizer: Tokenizer, spec: VerifierSpec) -> Dialogue:
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
    return _checked(Dialogue(tokenizer, f" {tag}", "\n", bos=bos), "verifier.step_tag")


def _qwen_math_prm(tokenizer: Tokenizer) -> Dialogue:
    """A chat whose assistant turn is the steps, with a marker after each."""
    head = f"<|im_start|>system\n{QWEN_SYSTEM}<|im_end|>\n<|im_start|>user\n"
    join = "<|im_end|>\n<|im_start|>assistant\n"
    for token in ("<|im_start|>", "<|im_end|>", QWEN_MARKER):
        if len(ids := tokenizer.encode(token)) != 1:
            raise CheckpointError(
                f"{token!r} is {len(ids)} tokens in the tokenizer of {tokenizer.checkpoint}; "
                "verifier.format qwen2.5-math-prm needs it to be one.",
                hint="This format is for Qwen2.5-Math-PRM and what shares its tokenizer; others: "
                "verifier.format custom (docs/verifiers.md).",
            )
    return Dialogue(tokenizer, QWEN_MARKER, "", head, join)


def _skywork_prm(tokenizer: Tokenizer) -> Lines:
    """Question and steps as lines."""
    bos, ends = tokenizer.special("bos_token"), tokenizer.encode("\n")
    if not bos or len(ends) != 1:
        what = "newline is not one token" if bos else "tokenizer_config.json names no bos_token"
        raise CheckpointError(
            f"{tokenizer.checkpoint}: {what}; verifier.format skywork-o1-prm needs it.",
            hint="This format is for Skywork-o1-Open-PRM; others: verifier.format custom "
            "(docs/verifiers.md).",
        )
    return Lines(tokenizer, bos, ends[0])


def _custom(tokenizer: Tokenizer, spec: VerifierSpec, head: HeadKind) -> Dialogue:
    """The dialogue that verifier.template describes."""
    template = spec.template
    assert template is not None  # the spec requires it
    before, _, join = template.head.partition("{question}")
    turn = template.turn.removeprefix("{label}")
    form = Dialogue(tokenizer, template.answer, turn, before, join)
    if head != "labels" and turn != template.turn:
        raise CheckpointError(
            f"verifier.template.turn begins with {{label}}, but {tokenizer.checkpoint} judges with "
            f"a {head} head, which has no labels.",
            hint="Take {label} out of verifier.template.turn.",
        )
    if head == "labels":
        positive, _ = label_ids(tokenizer, spec.labels)
    if turn != template.turn:
        form = replace(form, label=spec.labels.positive, label_ids=(positive,))
    return _checked(form, "verifier.template")


def _checked(form: Dialogue, field: str) -> Dialogue:
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
