"""Text without language, so that the search and the driver run as they are.

A token is a character and its id the character's code point, so text and ids say the same and
nothing is lost between them. What is written are steps: a few characters that no other step has,
then filling, then the delimiter.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tts.build.spec import Deployment
from tts.build.tokenizer import Ids, Message, Tokenizer
from tts.build.verifiers.running_text import RunningText
from tts.prompting import Models

DELIMITER = "\n"
END_ID = 4

QUESTION_TOKENS = 150
MARK_TOKENS = 4  # 14 bits each
_FIRST, _COUNT = 0x4E00, 1 << 14  # letters without case or white space among them
FILLING = chr(_FIRST)
"""A token of text that says nothing."""

# As many tokens as RLHFlow's chat template puts around a step of Llama 3.
_JOIN, _ANSWER, _LABEL, _TURN = " ", "\x02" * 5, "+", "\x03" * 5


class CharacterTokenizer(Tokenizer):
    """One token per character; it has no checkpoint."""

    def __init__(self) -> None:
        self.checkpoint = Path("simulated")

    def encode(self, text: str) -> list[int]:
        """See Tokenizer."""
        return [ord(character) for character in text]

    def encode_after(self, before: str, text: str) -> list[int]:
        """See Tokenizer."""
        return self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """See Tokenizer."""
        return "".join(map(chr, ids))

    def chat(self, messages: Sequence[Message], *, generation_prompt: bool) -> str:
        """The messages alone."""
        return "".join(message["content"] for message in messages)


def simulated_models(deployment: Deployment) -> Models:
    """What the driver knows of two models that have no tokenizer."""
    tokenizer = CharacterTokenizer()
    form = RunningText(
        tokenizer,
        _ANSWER,
        _TURN,
        join=_JOIN,
        label=_LABEL,
        label_ids=tuple(tokenizer.encode(_LABEL)),
    )
    return Models(tokenizer, form, deployment, END_ID, ((ord(DELIMITER),),), ())


def question(number: int) -> str:
    """A question that shares no token with another at the same place."""
    return "".join(map(chr, _writing(random.Random(number), QUESTION_TOKENS)))


def step_ids(rng: random.Random, tokens: int, *, last: bool) -> list[int]:
    """A step of so many tokens, at least two, with its delimiter unless it is the last."""
    return _writing(rng, tokens) if last else [*_writing(rng, tokens - 1), ord(DELIMITER)]


def steps_written(ids: Ids) -> int:
    """How many steps end in a generator's prompt."""
    return int(np.count_nonzero(ids == ord(DELIMITER)))


def step_marks(ids: Ids) -> list[bytes]:
    """What tells each step of a verifier's dialogue from others, first step first."""
    first = np.flatnonzero(ids == ord(_JOIN))[:1]
    others = np.flatnonzero(ids == ord(_TURN[0]))[len(_TURN) - 1 :: len(_TURN)]
    starts = [int(place) + 1 for place in (*first, *others)]
    return [ids[start : start + MARK_TOKENS].tobytes() for start in starts]


def _writing(rng: random.Random, tokens: int) -> list[int]:
    mark = [rng.randrange(_COUNT) for _ in range(min(tokens, MARK_TOKENS))]
    filling = [(mark[-1] + place) % _COUNT for place in range(1, tokens - len(mark) + 1)]
    return [_FIRST + place for place in (*mark, *filling)]
