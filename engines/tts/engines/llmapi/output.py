"""One request's output as `LLM` hands it out, and the responses that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..generate_request import GenerateRequest
from ..responses import FinishReason, Response
from ..stop_words import StopWords, single_stops


class Output:
    """The output of one request. Its completion grows; `advance` is called when it has grown."""

    def __init__(self, request: GenerateRequest, labels: tuple[int, ...]) -> None:
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
            logits = label_logits(completion.generation_logits, self._labels)
        new = tokens[self._sent :]
        if self._request.streaming:
            self._sent = len(tokens)
        return Response(new, log_probs, logits, reason)


def label_logits(logits: Any, labels: Sequence[int]) -> tuple[float, ...]:
    """The labels' columns of the logits that chose the first token; a tensor [tokens, vocabulary].

    The other columns, half a megabyte for a large vocabulary, never leave this process.
    """
    row = logits[0].float().cpu().numpy()
    return tuple(float(row[label]) for label in labels)


def _log_prob(entry: Any, token: int) -> float:
    """A token's log-probability: a number, or an entry by token id, as the version has it."""
    return float(entry if isinstance(entry, (int, float)) else entry[token].logprob)
