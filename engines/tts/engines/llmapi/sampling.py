"""The arguments of TensorRT-LLM's SamplingParams for a validated request. Pure."""

from __future__ import annotations

from typing import Any

from ..generate_request import GenerateRequest
from ..stop_words import single_stops

NO_END_ID = -1
"""No token has this id, so nothing ends there. TensorRT-LLM's own value for `ignore_eos`, which
would switch the stop words off as well."""


def sampling_arguments(request: GenerateRequest) -> dict[str, Any]:
    """The keyword arguments of SamplingParams that make `LLM` do what the request asks.

    Only stop words of one token are among them: those of several can be given as text alone, which
    would be tokenised again. `output` watches for them.
    """
    end_id = NO_END_ID if request.end_id is None else request.end_id
    arguments: dict[str, Any] = {
        "max_tokens": request.max_new_tokens,
        "end_id": end_id,
        "pad_id": max(end_id, 0),
        "include_stop_str_in_output": True,
        "detokenize": False,
        "add_special_tokens": False,
    }
    if stops := single_stops(request) - {end_id}:
        arguments["stop_token_ids"] = sorted(stops)
    if not request.greedy:
        arguments |= {"temperature": request.temperature, "seed": request.seed}
        if request.top_k > 0:
            arguments["top_k"] = request.top_k
        if request.top_p > 0:
            arguments["top_p"] = request.top_p
    if request.return_log_probs:
        arguments["logprobs"] = 1
    if request.return_generation_logits:
        arguments["return_generation_logits"] = True
    return arguments


def is_watched(request: GenerateRequest) -> bool:
    """Whether every token must be seen as it comes: for a stop word of several, or a stream."""
    return request.streaming or any(len(word) > 1 for word in request.stop_words)
