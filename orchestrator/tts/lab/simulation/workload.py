"""What simulated engines answer: steps without language, with given statistics.

A token is a character and its id the character's code point, so text and ids say the same and
nothing is lost between them: the search and the driver run as they are. A step is a few characters
that no other step has, then filling, then the delimiter. Lengths, ends and scores depend on the
request alone, as the answers of real engines do, so every schedule gives the same trees.
"""

from __future__ import annotations

import math
import random
import zlib
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, correlation, fmean
from types import MappingProxyType
from typing import Any

import numpy as np

from tts.base.errors import DatasetError
from tts.base.input_files import parse_json, read_text
from tts.build.spec import Deployment
from tts.build.tokenizer import Ids, Tokenizer
from tts.build.verifiers.running_text import RunningText
from tts.endpoints.base import GenerateCall
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

_CHARACTERS_PER_TOKEN = 3.5  # of mathematical text; traces hold text only
_SAMPLES = 1000
CRITIQUE_SPREAD = 0.5
"""Deviation of the logarithm of a critique's length."""
_NORMAL = NormalDist()


class CharacterTokenizer(Tokenizer):
    """One token per character; it has no checkpoint."""

    def __init__(self) -> None:
        self.checkpoint = Path("simulated")
        self.chat_template = ""
        self.chat_variables = frozenset()

    def inert(self, text: str, around: str = "", keep: Collection[str] = ()) -> str:
        """See Tokenizer: no text spells a control token."""
        return text

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """See Tokenizer."""
        return [ord(character) for character in text]

    def encode_after(self, before: str, text: str) -> list[int]:
        """See Tokenizer."""
        return self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """See Tokenizer."""
        return "".join(map(chr, ids))

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """The messages alone."""
        return "".join(message["content"] for message in messages)


def simulated_models(deployment: Deployment) -> Models:
    """The driver's view of two models that have no tokenizer."""
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


@dataclass(frozen=True)
class Workload:
    """Statistics, each as sorted equally likely values. A Script (see `replay`)."""

    lengths: tuple[int, ...]
    """Tokens of a step."""
    scores: tuple[float, ...]
    correlation: float
    """Correlation of a step's score with that of the step before, as normal variables."""
    ends: tuple[float, ...]
    """Chance that the first, second, ... step is the last one; of further steps the last chance."""
    critiques: tuple[int, ...] = ()
    """Tokens of a critique; empty: the verifier writes none."""

    def generate(self, call: GenerateCall) -> list[int]:
        """What the generator answers, ended by a delimiter or the end of the chain."""
        greedy = call.temperature == 0
        rng = random.Random(zlib.crc32(call.input_ids.tobytes()) if greedy else call.seed)
        ids: list[int] = []
        depth = steps_written(call.input_ids)
        is_last = False
        while not is_last and len(ids) < call.max_new_tokens:
            is_last = rng.random() < self.ends[min(depth, len(self.ends) - 1)]
            ids += step_ids(rng, rng.choice(self.lengths), last=is_last)
            depth += 1
            if call.stop_at_step:
                break
        return ids[: call.max_new_tokens]

    def has_ended(self, call: GenerateCall, ids: list[int]) -> bool:
        """See Script."""
        return len(ids) < call.max_new_tokens and ids[-1] != ord(DELIMITER)

    def score(self, input_ids: Ids) -> float:
        """What the verifier answers: along a path a first-order autoregression."""
        state = 0.0
        for depth, mark in enumerate(step_marks(input_ids)):
            news = _news(mark)
            rest = math.sqrt(1 - self.correlation**2)
            state = self.correlation * state + rest * news if depth else news
        place = int(_NORMAL.cdf(state) * len(self.scores))
        return self.scores[min(place, len(self.scores) - 1)]

    def critique(self, input_ids: Ids, number: int) -> list[int]:
        """See Script: as long as a score's seed has it, which is made of its prompt."""
        rng = random.Random(zlib.crc32(input_ids.tobytes(), number))
        return _writing(rng, rng.choice(self.critiques))


def typical() -> Workload:
    """A 1B model on MATH: 75 tokens a step with a long tail, 7 steps, scores mostly near 1."""
    return Workload(
        lengths=lengths(75, 0.8),
        scores=tuple(1 / (1 + math.exp(-5 - 5 * z)) for z in _quantiles()),
        correlation=0.9,
        ends=(0.0, 0.05, 0.1, 0.15, 0.2, 0.25),
    )


def lengths(mean: float, spread: float) -> tuple[int, ...]:
    """Lognormal numbers of tokens, at least 2; `spread` is the deviation of their logarithms."""
    middle = math.log(mean) - spread**2 / 2
    return tuple(max(2, round(math.exp(middle + spread * z))) for z in _quantiles())


def _quantiles() -> list[float]:
    return [_NORMAL.inv_cdf((place + 0.5) / _SAMPLES) for place in range(_SAMPLES)]


@dataclass(frozen=True)
class TraceChain:
    """A recorded chain, first step first: tokens and score of each step."""

    lengths: tuple[int, ...]
    scores: tuple[float, ...]


def read_chains(file: Path) -> list[TraceChain]:
    """The chains of a trace file: JSONL with `text`, `sep` and a list `step_scores`.

    Chains without one score within [0, 1] for every step are left out. Raises DatasetError.
    """
    try:
        rows = [parse_json(line) for line in read_text(file).splitlines()]
        read = [_chain(row) for row in rows if None not in (row.get("step_scores") or [None])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DatasetError(
            f"{file} cannot be read as traces: {error or type(error).__name__}"
        ) from error
    chains = [
        chain
        for chain in read
        if len(chain.lengths) == len(chain.scores)
        and all(0 <= score <= 1 for score in chain.scores)
    ]
    if not chains:
        raise DatasetError(f"{file} holds no chains with a score for every step.")
    return chains


def _chain(row: dict[str, Any]) -> TraceChain:
    steps = row["text"].split(row["sep"])
    tokens = [max(2, round(len(step) / _CHARACTERS_PER_TOKEN)) for step in steps]
    return TraceChain(tuple(tokens), tuple(float(score) for score in row["step_scores"]))


def from_traces(file: Path) -> Workload:
    """The statistics of recorded chains; see read_chains. Raises DatasetError."""
    chains = read_chains(file)
    lengths = sorted(length for chain in chains for length in chain.lengths)
    scores = sorted(score for chain in chains for score in chain.scores)
    pairs = [pair for chain in chains for pair in pairwise(chain.scores)]
    if len(pairs) < 2 or scores[0] == scores[-1]:
        raise DatasetError(f"{file} holds no pairs of steps whose scores differ.")
    before, after = zip(*((_rank(scores, a), _rank(scores, b)) for a, b in pairs), strict=True)
    deepest = max(len(chain.lengths) for chain in chains)
    alive = [sum(len(chain.lengths) > depth for chain in chains) for depth in range(deepest + 1)]
    common = [depth for depth in range(deepest) if alive[depth] >= 0.05 * len(chains)]
    return Workload(
        lengths=tuple(lengths),
        scores=tuple(scores),
        correlation=max(0.0, correlation(before, after)),
        ends=tuple(1 - alive[depth + 1] / alive[depth] for depth in common),
    )


def _rank(scores: Sequence[float], score: float) -> float:
    """The normal variable that stands for a score; of equal scores the middle one's."""
    low = bisect_left(scores, score)
    high = low
    while high < len(scores) and scores[high] == score:
        high += 1
    return _NORMAL.inv_cdf(fmean((low, high)) / len(scores))


@lru_cache(maxsize=1 << 16)
def _news(mark: bytes) -> float:
    """A normal variable that depends on the step alone."""
    return _NORMAL.inv_cdf((zlib.crc32(mark) + 0.5) / 2**32)
