"""One request on an `LLM`: the arguments of its SamplingParams, and the responses of its output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..generate_request import GenerateRequest, StopWords, single_stops
from ..responses import FinishReason, Response


class LlmOutput:
    """The output of one request. Its completion grows; `advance` is called when it has grown."""

    def __init__(self, request: GenerateRequest, labels: Mapping[int, float]) -> None:
        self._request = request
        self._labels = labels
        self._stop_words = StopWords(request.stop_words)
        self._single_stops = single_stops(request)
        self._seen = 0
        self._sent = 0

    def advance(self, completion: Any, *, finished: bool) -> Response | None:
        """Take in a CompletionOutput; returns a response if one is to be sent now."""
        tokens = list(completion.token_ids)
        end = self._stop_words.end(tokens, self._seen)
        self._seen = len(tokens)
        if end is not None:
            return self._response(completion, tokens[:end], "stop")
        if finished:
            return self._finish(completion, tokens)
        if self._request.streaming and len(tokens) > self._sent:
            return self._response(completion, tokens, None)
        return None

    def _finish(self, completion: Any, tokens: list[int]) -> Response:
        match completion.finish_reason:
            case "length":
                return self._response(completion, tokens, "length")
            case "stop":
                # whether the end id is among the tokens depends on the version of TensorRT-LLM
                if tokens and tokens[-1] == self._request.end_id:
                    tokens.pop()
                elif tokens and tokens[-1] in self._single_stops:
                    return self._response(completion, tokens, "stop")
                return self._response(completion, tokens, "end_id")
            case reason:
                return Response([], error=f"the engine ended the request: {reason}")

    def _response(
        self, completion: Any, tokens: list[int], reason: FinishReason | None
    ) -> Response:
        log_probs = logits = None
        if self._request.return_log_probs:
            log_probs = [
                _log_prob(entry, token)
                for entry, token in zip(completion.logprobs, tokens, strict=False)
            ]
        if self._labels and tokens and self._request.return_generation_logits:
            logits = score_logits(completion.generation_logits, self._labels)
        new = tokens[self._sent :]
        if self._request.streaming:
            self._sent = len(tokens)
        return Response(new, log_probs, logits, reason)


def score_logits(logits: Any, labels: Mapping[int, float]) -> tuple[float, float]:
    """Two logits whose softmax is the score, of a tensor [tokens, vocabulary].

    They are logsumexp(z + log w) and logsumexp(z + log(1 - w)) over the labels' logits z in the row
    that chose the first token, w their weights: those of two labels that weigh 1 and 0 themselves.
    The rest, half a megabyte for a large vocabulary, never leaves this process.
    """
    row = logits[0].float().cpu().numpy()[list(labels)]
    weights = np.array([*labels.values()], np.float32)
    with np.errstate(divide="ignore"):  # of the logarithm of 0: the label does not count there
        sides = np.log(weights), np.log1p(-weights)
    best, worst = (np.logaddexp.reduce(row + side) for side in sides)
    return float(best), float(worst)


def _log_prob(entry: Any, token: int) -> float:
    """A token's log-probability: a number, or an entry by token id, as the version has it."""
    return float(entry if isinstance(entry, (int, float)) else entry[token].logprob)


NO_END_ID = -1
"""No token has this id, so nothing ends there. TensorRT-LLM's own value for `ignore_eos`, which
would switch the stop words off as well."""


def sampling_arguments(request: GenerateRequest, *, one_sampler: bool) -> dict[str, Any]:
    """The keyword arguments of SamplingParams that make `LLM` do what the request asks.

    `one_sampler` is of a version that has TorchSampler alone: it returns the drawn token's
    log-probability for logprobs=0, and wants a real end id even where nothing is to end at one.

    Only stop words of one token are among them: those of several can be given as text alone, which
    would be tokenised again. `output` watches for them.
    """
    own_end = _end_id(request)
    endless = one_sampler and own_end is None
    end_id = 0 if endless else NO_END_ID if own_end is None else own_end
    arguments: dict[str, Any] = {
        "max_tokens": request.max_new_tokens,
        "end_id": end_id,
        "pad_id": max(end_id, 0),
        "include_stop_str_in_output": True,
        "detokenize": False,
        "add_special_tokens": False,
    }
    if endless:
        arguments["ignore_eos"] = True  # and the stop words with it: `is_watched` knows
    elif stops := single_stops(request) - {end_id}:
        arguments["stop_token_ids"] = sorted(stops)
    if not request.greedy:
        arguments |= {"temperature": request.temperature, "seed": request.seed}
        if request.top_k > 0:
            arguments["top_k"] = request.top_k
        if request.top_p > 0:
            arguments["top_p"] = request.top_p
    if request.return_log_probs:
        arguments["logprobs"] = 0 if one_sampler else 1
    if request.return_generation_logits:
        arguments["return_generation_logits"] = True
    return arguments


def is_watched(request: GenerateRequest, *, one_sampler: bool) -> bool:
    """Whether every token must be seen as it comes: for a stream, or a stop word that is ours.

    Ours are words of several tokens, and where `ignore_eos` switches the engine's off, all.
    """
    longest = 0 if one_sampler and _end_id(request) is None else 1
    return request.streaming or any(len(word) > longest for word in request.stop_words)


def _end_id(request: GenerateRequest) -> int | None:
    """The id at which the output ends without it; one that is a stop word belongs to the output.

    Whether the engine keeps its end id depends on its version; it keeps its stop words.
    """
    return None if (request.end_id,) in request.stop_words else request.end_id
