"""A verifier that is a language model: a step's score is how likely the model finds its text.

The score is exp(m), m the mean of the natural log-probabilities that the model gives to the step's
tokens after the question and all earlier steps: the geometric mean of their probabilities. It is in
(0, 1] and grows with m. (The sum would favour short steps, and its exponential is 0 in fp32 from
about 100 nats on.) This is the likelihood-guided selection of arXiv 2606.01682, without its chunks
of one fixed length. Its authors find that likelihoods of steps of different lengths mislead, also
as means: docs/reference/verifiers.md.

The path is the running chat: the question's turn, then the steps as the assistant's text with an
empty line between two. That line is part of the context and not of the score. Its tokens may depend
on what follows (SmolLM2's are one before a digit and two before a letter), so they come with the
step behind it; only what one token holds together with the end of a step comes with that.

Which tokens make up a step is written into the ids, so that the verifier needs nothing else and a
longer path extends a shorter one exactly: an id is TOKEN + vocabulary size x MARK. The mark is 1
and 2 in turn for the tokens of the steps that count, and 0 for all others; `last_step` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from ..model_config import read_model_config
from ..spec import VerifierRole
from ..tokenizer import Ids, Tokenizer
from .dialogue import chat_pieces

STEP_END = "\n\n"
_LETTER = "A"
"""What the encoding of an empty line finds at its sides."""
_MARK = "\ue000question\ue001"


@dataclass(frozen=True)
class Continuation:
    """The steps as the answer to the question; see VerifierDialogue, whose methods these are."""

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

    def extend(self, scored: Ids, step: str, _number: int = 0) -> Ids:
        """See VerifierDialogue."""
        return self.add_turn(scored, step) if step else scored

    def add_turn(self, scored: Ids, step: str, _number: int = 0) -> Ids:
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
    messages = [*system, {"role": "user", "content": _MARK}]
    head, turn = chat_pieces(
        tokenizer,
        messages,
        (_MARK,),
        "likelihood",
        generation_prompt=True,
        hints=(
            "Set verifier.checkpoint to an instruct model"
            + (", or remove verifier.system_prompt." if system_prompt else "."),
            "Use the chat template that the checkpoint was published with.",
        ),
    )
    return Continuation(tokenizer, head, turn, vocab_size)
