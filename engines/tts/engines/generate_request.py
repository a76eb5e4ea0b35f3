"""A request to an engine, the limits that it must keep, and where its output ends. Pure."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tts.base.errors import RequestError

from . import wire
from .guide_grammar import check_grammar

Sequences = tuple[tuple[int, ...], ...]

MAX_TOP_K = 1024
MAX_REPETITION_PENALTY = 10.0
MAX_STOP_WORD_IDS = 65536
"""Ids of all stop words of a request together; a request waits with its own in memory."""
_PROMPT_ID_BYTES = 48
"""Memory of one id of a prompt: itself, and the hash of the prefix that it ends."""
MAX_GUIDE_BYTES = 1 << 18
"""The longest text of a guide: a JSON schema of hundreds of fields takes less."""
_STOP_ID_BYTES = 96
"""Memory of one id of a stop word, in a tuple of its own as most of them are."""
MAX_WAITING_BYTES = 1 << 30
"""Most memory of the prompts, stop words and guides of all that wait for one engine together."""


@dataclass(frozen=True)
class EngineLimits:
    """Limits of an engine and of its requests. Lengths are in tokens."""

    vocab_size: int
    max_seq_len: int
    max_num_tokens: int
    block_size: int
    blocks: int
    """Blocks of the whole KV pool."""
    max_active: int
    chunked_context: bool = True
    kv_reuse: bool = True
    """Keep the KV blocks of finished prefixes for later requests."""
    labels: int = 0
    """How many labels a score is read at; 0: the engine gives no scores."""
    writes: bool = True
    """Whether it generates text; else it gives scores alone."""
    decoupled: bool = True
    guided_end_id: int | None = None
    """The end id that a request with a guide must have; None: the engine takes no guides."""

    @property
    def max_prompt(self) -> int:
        """Longest admissible prompt, by TensorRT-LLM's rule."""
        longest = self.max_seq_len - 1
        return longest if self.chunked_context else min(longest, self.max_num_tokens)


class GenerateRequest(msgspec.Struct, array_like=True, frozen=True):
    """One validated request. Greedy unless `top_k` or `top_p` says to sample."""

    input_ids: npt.NDArray[np.int64]
    """The prompt, [N]."""
    max_new_tokens: int
    """Tokens to generate at most, clamped so that prompt and output fit max_seq_len."""
    end_id: int | None = None
    """This token ends the output and is not part of it."""
    stop_words: tuple[tuple[int, ...], ...] = ()
    """The output ends right after any of these; the stop word is part of it."""
    temperature: float = 1.0
    top_p: float = 0.0
    """0 = unset."""
    top_k: int = 0
    """0 = unset."""
    seed: int = 0
    return_log_probs: bool = False
    return_generation_logits: bool = False
    streaming: bool = False
    exclude_input: bool = True
    guide: wire.Guide | None = None
    """What the output's text obeys."""
    min_tokens: int = 0
    """Neither an end id nor a stop word of one token is drawn before so many."""
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_p: float = 0.0
    """Least probability of a token that may be drawn, as a part of the likeliest one's."""

    @property
    def tokens(self) -> int:
        """Prompt and output together, at most."""
        return len(self.input_ids) + self.max_new_tokens

    @property
    def bytes_waiting(self) -> int:
        """Memory that it takes while it waits, at most: equal stop words may be shared."""
        stop_ids = sum(map(len, self.stop_words))
        guide = sys.getsizeof(self.guide.text) if self.guide else 0  # one letter may widen all
        return _PROMPT_ID_BYTES * len(self.input_ids) + _STOP_ID_BYTES * stop_ids + guide

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken each time."""
        sampling = self.top_k > 0 or self.top_p > 0
        return not sampling or self.top_k == 1 or self.temperature == 0

    @property
    def is_shaped(self) -> bool:
        """Whether a guide or a penalty changes what may be drawn."""
        added = self.presence_penalty, self.frequency_penalty, self.min_tokens
        return self.guide is not None or self.repetition_penalty != 1 or any(added)


def score_request(input_ids: npt.NDArray[Any]) -> GenerateRequest:
    """What asks an engine with labels for the score of a prompt."""
    return GenerateRequest(
        input_ids.astype(np.int64), max_new_tokens=1, return_generation_logits=True
    )


def check_request(request: GenerateRequest, limits: EngineLimits) -> None:
    """Check a request, wherever it was made, but for its stop words. Raises RequestError."""
    _check_prompt(request, limits)
    _check_numbers(request, limits)
    if request.guide is not None:
        _check_guide(request.guide)
    _fits_engine(request, limits)


def check_stop_words(words: Sequences, limits: EngineLimits) -> None:
    """Raise RequestError for stop words that an engine does not take."""
    ids = [token for word in words for token in word]
    if len(ids) > MAX_STOP_WORD_IDS:
        raise RequestError(
            f"stop_words_list has {len(ids)} ids; at most {MAX_STOP_WORD_IDS} are allowed"
        )
    if not all(words):
        raise RequestError("stop_words_list has a stop word without a token")
    if ids and not (min(ids) >= 0 and max(ids) < limits.vocab_size):
        raise foreign_stop_word(limits)


def is_in_vocabulary(ids: npt.NDArray[Any], limits: EngineLimits) -> bool:
    """Whether the vocabulary has all of these ids, of which there is one at least."""
    # as unsigned numbers negative ids are too large: one pass finds either
    return bool(np.maximum.reduce(ids.view(f"u{ids.itemsize}"), axis=None) < limits.vocab_size)


def foreign_stop_word(limits: EngineLimits) -> RequestError:
    """The refusal of a stop word with an id that the vocabulary does not have."""
    return RequestError(
        f"stop_words_list holds an id outside the vocabulary, 0..{limits.vocab_size - 1}"
    )


def _check_prompt(request: GenerateRequest, limits: EngineLimits) -> None:
    ids = request.input_ids
    if ids.size == 0:
        raise RequestError("input_ids is empty; a prompt needs at least one token")
    if ids.size > limits.max_prompt:
        raise RequestError(
            f"the prompt has {ids.size} tokens; "
            f"the longest admissible prompt is {limits.max_prompt}"
            f" (max_seq_len is {limits.max_seq_len})"
        )
    if not is_in_vocabulary(ids, limits):
        low, high = int(ids.min()), int(ids.max())
        raise RequestError(
            f"input_ids holds the id {low if low < 0 else high}; "
            f"the vocabulary is 0..{limits.vocab_size - 1}"
        )


def _check_numbers(request: GenerateRequest, limits: EngineLimits) -> None:
    ask, last_id = request, limits.vocab_size - 1
    _require("request_output_len", ask.max_new_tokens, ask.max_new_tokens >= 1, "at least 1")
    if ask.end_id is not None:
        right = f"-1 (none) or an id in 0..{last_id}"
        _require("end_id", ask.end_id, 0 <= ask.end_id <= last_id, right)
    is_right = math.isfinite(ask.temperature) and ask.temperature >= 0
    _require("temperature", ask.temperature, is_right, "a finite number >= 0")
    # NaN is in no range
    _require("runtime_top_p", ask.top_p, 0 <= ask.top_p <= 1, "in (0, 1], or 0 for unset")
    right = f"in 1..{MAX_TOP_K}, or 0 for all"
    _require("runtime_top_k", ask.top_k, 0 <= ask.top_k <= MAX_TOP_K, right)
    right = f"in 0..{ask.max_new_tokens}, the output's greatest length"
    _require("min_tokens", ask.min_tokens, 0 <= ask.min_tokens <= max(0, ask.max_new_tokens), right)
    penalty, right = ask.repetition_penalty, f"above 0 and at most {MAX_REPETITION_PENALTY}"
    _require("repetition_penalty", penalty, 0 < penalty <= MAX_REPETITION_PENALTY, right)
    _require("min_p", ask.min_p, 0 <= ask.min_p <= 1, "in 0..1")
    for name in ("presence_penalty", "frequency_penalty"):  # as OpenAI's API has them
        added = getattr(ask, name)
        _require(name, added, -2 <= added <= 2, "in -2..2")


def _require(name: str, value: float, is_right: bool, right: str) -> None:
    if not is_right:
        raise RequestError(f"{name} is {value}; it must be {right}")


@lru_cache(maxsize=256)  # a search sends the same few with all of its requests
def _check_guide(guide: wire.Guide) -> None:
    if guide.kind not in (wire.EBNF, wire.JSON_SCHEMA):
        raise RequestError(
            f"guided_decoding_guide_type is {guide.kind!r:.100}; this engine takes {wire.EBNF} and "
            f"{wire.JSON_SCHEMA}"
        )
    try:
        if guide.kind == wire.EBNF:
            check_grammar(guide.text)
        elif not isinstance(json.loads(guide.text), dict):
            raise ValueError("it must be an object")
    except (ValueError, RecursionError) as error:
        what = "a grammar" if guide.kind == wire.EBNF else "a JSON schema"
        raise RequestError(f"guided_decoding_guide is not {what}: {error}") from None


def _fits_engine(request: GenerateRequest, limits: EngineLimits) -> None:
    if request.streaming and not limits.decoupled:
        raise RequestError("streaming needs a decoupled model; this one answers with one response")
    blocks = -(-request.tokens // limits.block_size)
    if blocks > limits.blocks:
        raise RequestError(
            f"prompt and output are {request.tokens} tokens, {blocks} KV blocks; "
            f"the whole pool has {limits.blocks}"
        )
    if request.guide is not None:
        _fits_guide(request, limits)
    if request.return_generation_logits and not limits.labels:
        raise RequestError(
            "return_generation_logits needs an engine that gathers generation logits; "
            "this generator does not"
        )
    if request.return_generation_logits or not limits.writes:
        _fits_score(request)


def _fits_guide(request: GenerateRequest, limits: EngineLimits) -> None:
    if limits.guided_end_id is None:
        raise RequestError(
            "guided_decoding_guide needs generator.guided_decoding in the deployment; this "
            "engine is served without it"
        )
    if request.end_id != limits.guided_end_id:  # the one token that a grammar's end allows
        raise RequestError(
            f"end_id is {wire.NO_END_ID if request.end_id is None else request.end_id}; with a "
            f"guide it must be {limits.guided_end_id}"
        )


def _fits_score(request: GenerateRequest) -> None:
    if request.max_new_tokens != 1:
        raise RequestError(
            f"request_output_len is {request.max_new_tokens}; "
            "a verifier scores with exactly one token: send 1"
        )
    if not request.greedy or request.stop_words or request.end_id is not None or request.is_shaped:
        raise RequestError(
            "a verifier takes the likeliest label: leave out runtime_top_k, runtime_top_p, "
            "stop_words_list, end_id, guides and penalties"
        )


def single_stops(request: GenerateRequest) -> set[int]:
    """Tokens that end the output by themselves: the end id and the stop words of one token."""
    stops = {word[0] for word in request.stop_words if len(word) == 1}
    return stops if request.end_id is None else stops | {request.end_id}


class StopWords:
    """Token sequences that end an output. Only generated tokens count, not the prompt's."""

    def __init__(self, words: Iterable[tuple[int, ...]]) -> None:
        # by last token: almost every generated token then costs one look-up
        self._by_last: dict[int, list[list[int]]] = {}
        for word in filter(None, words):
            self._by_last.setdefault(word[-1], []).append(list(word))
        self.last_ids = self._by_last.keys()
        """The tokens that a word may end with."""

    def end(self, tokens: list[int], start: int) -> int | None:
        """Length of `tokens` up to the first stop word that ends at or after index `start`."""
        for end in range(start + 1, len(tokens) + 1):
            for word in self._by_last.get(tokens[end - 1], ()):
                if tokens[max(0, end - len(word)) : end] == word:
                    return end
        return None
