"""A trace file as a script for any strategy: chains' lengths, ends and scores, in made-up text.

A node's seed picks one of the chains that are as deep as the node; the step has that chain's
length, end and score at this depth. A step is tokens drawn by the seed, then a few letters that
name the step, then the delimiter. The mark thus gives depth and score: answers depend on the
request alone, in a resumed run too.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts.build.errors import CheckpointError, DatasetError
from tts.build.input_files import parse_json, read_text
from tts.build.tokenizer import Ids, Tokenizer
from tts.endpoints.base import GenerateCall
from tts.prompting import Models
from tts.prompting.chat import generator_prompt

from .script import chain_ended

CHARACTERS_PER_TOKEN = 3.5  # of mathematical text; traces hold text only
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_WORD = re.compile(r" [a-z]{2,}")
_ENOUGH_WORDS = 64
_TRIAL = 400  # tokens of filling that are encoded again to see whether their number holds


@dataclass(frozen=True)
class Chain:
    """A recorded chain, first step first: tokens and score of each step."""

    lengths: tuple[int, ...]
    scores: tuple[float, ...]


def read_chains(file: Path) -> list[Chain]:
    """The chains of a trace file: JSONL with `text`, `sep` and a list `step_scores`.

    Chains without one score within [0, 1] for every step are left out. Raises DatasetError.
    """
    try:
        rows = [parse_json(line) for line in read_text(file).splitlines()]
        read = [_chain(row) for row in rows if None not in (row.get("step_scores") or [None])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DatasetError(f"{file} cannot be read as traces: {error!r}") from error
    chains = [
        chain
        for chain in read
        if len(chain.lengths) == len(chain.scores)
        and all(0 <= score <= 1 for score in chain.scores)
    ]
    if not chains:
        raise DatasetError(f"{file} holds no chains with a score for every step.")
    return chains


def _chain(row: dict[str, Any]) -> Chain:
    steps = row["text"].split(row["sep"])
    tokens = [max(2, round(len(step) / CHARACTERS_PER_TOKEN)) for step in steps]
    return Chain(tuple(tokens), tuple(float(score) for score in row["step_scores"]))


@dataclass(frozen=True)
class _Step:
    tokens: int
    score: float
    depth: int
    """Counted from 1."""
    last: bool


class TraceScript:
    """See Script."""

    def __init__(self, models: Models, chains: Sequence[Chain]) -> None:
        """Raises CheckpointError if a tokenizer cannot write what is made up."""
        self._models = models
        self._steps = [
            _Step(tokens, score, depth, depth == len(chain.lengths))
            for chain in chains
            for depth, (tokens, score) in enumerate(
                zip(chain.lengths, chain.scores, strict=True), start=1
            )
        ]
        self._at_depth: list[list[int]] = []
        """Places in `_steps` of those at each depth, from 0."""
        for place, step in enumerate(self._steps):
            if step.depth > len(self._at_depth):
                self._at_depth.append([])
            self._at_depth[step.depth - 1].append(place)
        self._alphabet = _letters(models.generator)
        self._letter_of = {token: letter for letter, token in self._alphabet.items()}
        self._order = {letter: place for place, letter in enumerate(self._alphabet)}
        self._mark_length = 1
        while len(self._alphabet) ** self._mark_length < len(self._steps):
            self._mark_length += 1
        delimiter = models.deployment.generator.step_delimiter
        self._delimiter = models.generator.encode_after("a", delimiter)
        self._filling = _filling(models, list(self._alphabet.values()))
        answer = models.verifier.tokenizer.encode(models.verifier.answer)
        self._answer = models.verifier.tokenizer.decode(answer).strip()
        self._tail = len(answer) + self._mark_length + 4
        self._try_out()

    def generate(self, call: GenerateCall) -> list[int]:
        """See Script."""
        greedy = call.temperature == 0
        rng = random.Random(zlib.crc32(call.input_ids.tobytes()) if greedy else call.seed)
        depth = min(self._depth(call.input_ids), len(self._at_depth) - 1)
        place = rng.choice(self._at_depth[depth])
        ids = self._written(rng, place)
        while not call.stop_at_step and not self._steps[place].last:
            place += 1
            ids += self._written(rng, place)
        return ids[: call.max_new_tokens]

    def ended(self, call: GenerateCall, ids: list[int]) -> bool:
        """See Script."""
        return chain_ended(self._models, call, ids)

    def score(self, input_ids: Ids) -> float:
        """See Script. A step that was cut off has no mark: it gets a score by its ids."""
        text = self._models.verifier.decode(input_ids[-self._tail :])
        mark = text.rstrip().removesuffix(self._answer).rstrip()[-self._mark_length :]
        place = self._place(mark)
        if place is None:
            place = zlib.crc32(input_ids.tobytes()) % len(self._steps)
        return self._steps[place].score

    def _written(self, rng: random.Random, place: int) -> list[int]:
        """The tokens of a step: as many as it has, but at least its mark and delimiter."""
        step = self._steps[place]
        end = [] if step.last else self._delimiter
        filling = rng.choices(self._filling, k=max(0, step.tokens - self._mark_length - len(end)))
        return [*filling, *(self._alphabet[letter] for letter in self._mark(place)), *end]

    def _mark(self, place: int) -> str:
        letters = list(self._alphabet)
        mark = []
        for _ in range(self._mark_length):
            place, rest = divmod(place, len(letters))
            mark.append(letters[rest])
        return "".join(mark)

    def _place(self, mark: str) -> int | None:
        """The step that a mark names, if it is one."""
        if len(mark) != self._mark_length or not all(letter in self._order for letter in mark):
            return None
        place = 0
        for letter in reversed(mark):
            place = place * len(self._order) + self._order[letter]
        return place if place < len(self._steps) else None

    def _depth(self, prompt: Ids) -> int:
        """How many steps have been written in a generator's prompt."""
        end = len(prompt) - len(self._delimiter)
        if prompt[end:].tolist() != self._delimiter:
            return 0
        mark = prompt[max(0, end - self._mark_length) : end].tolist()
        place = self._place("".join(self._letter_of.get(token, "") for token in mark))
        return 0 if place is None else self._steps[place].depth

    def _try_out(self) -> None:
        """Write a step of each length and read it back, as the engines' users would."""
        models, spec = self._models, self._models.deployment.generator
        prompt = generator_prompt(models.generator, spec, "a question")
        longest = max(range(len(self._steps)), key=lambda place: self._steps[place].tokens)
        for place in (longest, 0, len(self._steps) - 1):
            written = self._written(random.Random(place), place)
            text = models.generator.decode(written)
            scored = models.verifier.first("a question", text.strip())
            if (
                self._depth(prompt) != 0
                or spec.step_delimiter in text.removesuffix(spec.step_delimiter)
                or text.endswith(spec.step_delimiter) is self._steps[place].last
                or self.score(scored) != self._steps[place].score
            ):
                raise CheckpointError(
                    f"Text for a trace replay cannot be made up for {models.generator.checkpoint}: "
                    "steps that are written with its tokenizer are not read back.",
                    hint="Replay a recorded run instead.",
                )


def _letters(tokenizer: Tokenizer) -> dict[str, int]:
    """The tokens that write a single letter inside a word, by letter; raises CheckpointError."""
    before = tokenizer.encode("0")
    start = tokenizer.decode(before)
    found: dict[str, int] = {}
    for token, text in enumerate(tokenizer.token_texts):
        letter = len(text) == 1 and text in _LETTERS
        # alone, a token with a space in front may look the same
        if letter and tokenizer.decode([*before, token]) == start + text:
            found.setdefault(text, token)
    if len(found) < 2:
        raise CheckpointError(f"The tokenizer of {tokenizer.checkpoint} has no single letters.")
    return dict(sorted(found.items()))


def _filling(models: Models, letters: list[int]) -> list[int]:
    """Tokens whose text is encoded as about as many again: words if there are enough, or letters.

    Both tokenizers count, for the verifier reads what the generator wrote.
    """
    generator, verifier = models.generator, models.verifier.tokenizer
    words = [
        token
        for token, text in enumerate(generator.token_texts)
        if _WORD.fullmatch(text)
        and generator.encode_after("a", text) == [token]
        and len(verifier.encode_after("a", text)) == 1
    ]
    if len(words) >= _ENOUGH_WORDS:
        text = generator.decode(random.Random(0).choices(words, k=_TRIAL))
        if abs(len(verifier.encode(text)) / _TRIAL - 1) < 0.1:
            return words
    return letters
