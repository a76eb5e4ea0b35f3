"""Verifiers that were never trained to be one: a language model, asked or read for likelihoods.

**Prompted**: an instruct model is asked whether a step is right. The prompt is the deployment's,
with few-shot text of its own, and goes through the checkpoint's chat template as one user turn:

    few-shot text, question | first step | second step | ... | last step | is it right? | answer

The text between {steps} and {step} is put between any two steps. So everything up to the last step
extends what the path above it was asked with, and the engine's KV cache serves it; to keep that
exact the text is encoded piece by piece, cut at each bar. The score is read from the labels'
logits. Several criteria behind {step} are a request each, which share the path.

**Likelihood**: the score is exp(m), m the mean of the natural log-probabilities that the model
gives to the step's tokens: the geometric mean of their probabilities, in (0, 1]. (The sum would
favour short steps, and its exponential is 0 in fp32 from about 100 nats on.) This is the selection
of arXiv 2606.01682 without its chunks of one length; its limits are in docs/reference/verifiers.md.

Its path is the running chat: the question's turn, then the steps as the assistant's text with an
empty line between two, which is context and not scored. Its tokens may depend on what follows
(SmolLM2's are one before a digit and two before a letter), so they come with the step behind it;
only what one token holds together with the end of a step comes with that.

Which tokens make up a step is written into the ids, so that the verifier needs nothing else and a
longer path extends a shorter one exactly: an id is TOKEN + vocabulary size x MARK. The mark is 1
and 2 in turn for the tokens of the steps that count, and 0 for all others; `last_step` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from tts.base.errors import CheckpointError

from ..model_config import read_model_config
from ..spec import PROMPT_PLACES, VerifierRole
from ..thinking import thinks_first
from ..tokenizer import Ids, Tokenizer
from .dialogue import ANY_WORD, VerifierDialogue, chat_pieces, label_ids, require_prompt

_MARKS = ("\ue000question\ue001", "\ue000steps\ue001", "\ue000step\ue001")
STEP_END = "\n\n"
_LETTER = "A"
"""What the encoding of an empty line finds at its sides."""


@dataclass(frozen=True)
class Prompted(VerifierDialogue):
    """A prompt around a path; what asks about a step gives way to the next one."""

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

    def by_criterion(self, scored: Ids) -> list[Ids]:
        """The dialogues that ask about the same path, one for each criterion."""
        path = scored[: len(scored) - len(self.answer_ids)]
        return [np.concatenate((path, np.asarray(ids, np.int32))) for ids in self.answers]

    def first(self, question: str, step: str) -> Ids:
        """See VerifierDialogue."""
        question, step = map(self.tokenizer.inert, (question, step))
        ids = self.tokenizer.encode(self.head + question + self.join + step)
        return np.asarray([*ids, *self.answer_ids], dtype=np.int32)

    def add_turn(self, scored: Ids, step: str, number: int = 0) -> Ids:
        """See VerifierDialogue."""
        path = scored[: len(scored) - len(self.answer_ids)]
        new = self.tokenizer.encode_after(ANY_WORD, self.between + self.tokenizer.inert(step))
        return np.concatenate((path, np.asarray([*new, *self.answer_ids], dtype=np.int32)))


def prompted(tokenizer: Tokenizer, spec: VerifierRole) -> Prompted:
    """The dialogue around a deployment's prompt; raises CheckpointError where there is none."""
    content = require_prompt(spec)
    label_ids(tokenizer, spec.labels)
    label, *_ = spec.labels
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
    questions = [tokenizer.encode_after(ANY_WORD, answer) for answer in answers]
    for answer, ids in zip(answers, questions, strict=True):
        if tokenizer.encode_after(ANY_WORD, answer + label)[: len(ids)] != ids:
            raise CheckpointError(
                f"verifier.prompt: no answer can be read between {text[-40:]!r} and {label!r}: "
                f"they share a token in the tokenizer of {tokenizer.checkpoint}.",
                hint="Set verifier.labels to words that this model begins an answer with.",
            )
    return Prompted(tokenizer, head, join, between, answers[0], tuple(map(tuple, questions)))


@dataclass(frozen=True)
class Continuation(VerifierDialogue):
    """The steps as the answer to the question."""

    tokenizer: Tokenizer
    head: str
    """From the beginning of the chat to the question."""
    turn: str
    """From the question to the first step."""
    vocab_size: int
    """Rows of the model's embedding."""
    answer: str = STEP_END

    def decode(self, ids: Ids) -> str:
        """See VerifierDialogue."""
        return self.tokenizer.decode((ids % self.vocab_size).tolist())

    def first(self, question: str, step: str) -> Ids:
        """See VerifierDialogue."""
        prompt = self.tokenizer.encode(self.head + self.tokenizer.inert(question) + self.turn)
        return self.extend(np.asarray(prompt, dtype=np.int32), step)

    def add_turn(self, scored: Ids, step: str, number: int = 0) -> Ids:
        """See VerifierDialogue. An empty step is scored by its end alone."""
        marks = scored // self.vocab_size
        above = next(filter(None, marks[::-1].tolist()), 0)
        before, line = self.turn, ""
        if above:
            tail = self.decode(scored[-len(STEP_END) :])
            line = STEP_END[len(tail) - len(tail.rstrip("\n")) :]
            before = _LETTER + STEP_END.removesuffix(line)
        text = line + (self.tokenizer.inert(step) or STEP_END)
        decode, alone = self.tokenizer.decode, self.tokenizer.encode_after(before, text)
        *tokens, _ = self.tokenizer.encode_after(before, text + STEP_END + _LETTER)
        lead, end = 0, _shared(tokens, alone)
        content, step_text = end, decode(alone)
        while end < len(tokens) and not decode(tokens[:end]).startswith(step_text):
            end += 1
        while lead < end and line.startswith(decode(tokens[: lead + 1])):
            lead += 1
        ids = np.asarray(tokens[:end], np.int32)
        ids[lead : content if content > lead else end] += self.vocab_size * (2 if above == 1 else 1)
        return np.concatenate((scored, ids))


def last_step(ids: Ids, vocab_size: int) -> tuple[Ids, Ids]:
    """The tokens of a dialogue, and the places of those of its last step that count."""
    marks, tokens = np.divmod(ids, vocab_size)
    places = np.flatnonzero(marks)
    others = np.flatnonzero(marks[places] != marks[places[-1:]])
    return tokens, places[others[-1] + 1 :] if len(others) else places


def _shared(tokens: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens both begin with."""
    pairs = zip(tokens, others, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def likelihood(tokenizer: Tokenizer, spec: VerifierRole) -> Continuation:
    """The dialogue of a language model that continues the chat; raises CheckpointError."""
    vocab_size = read_model_config(tokenizer.checkpoint).vocab_size
    system_prompt = spec.system_prompt
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    messages = [*system, {"role": "user", "content": _MARKS[0]}]
    head, turn = chat_pieces(
        tokenizer,
        messages,
        _MARKS[:1],
        "likelihood",
        generation_prompt=True,
        hints=(
            "Set verifier.checkpoint to an instruct model"
            + (", or remove verifier.system_prompt." if system_prompt else "."),
            "Use the chat template that the checkpoint was published with.",
        ),
    )
    return Continuation(tokenizer, head, turn, vocab_size)
