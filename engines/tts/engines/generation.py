"""One request inside the pipeline: its tokens so far, and where its output ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .generate_request import GenerateRequest, StopWords, single_stops
from .pipeline import FINISHED, RUNNING, label_logits
from .responses import FinishReason, Response, unavailable


class Generation:
    """The output of one request, growing with each step of the pipeline."""

    __slots__ = (
        "_handle",
        "_labels",
        "_log_probs",
        "_request",
        "_sent",
        "_single_stops",
        "_stop_words",
        "_stopped",
        "_tokens",
        "_watched",
        "ended_early",
        "generated",
        "moved_on",
        "started",
    )

    def __init__(self, request: GenerateRequest, handle: Any, labels: tuple[int, ...]) -> None:
        self.started = False
        """Whether its prompt has been computed, so that it generates."""
        self.moved_on = False
        """Whether it has decoded a token since, so that its prompt is not the last it computed."""
        self.generated: list[int] = []
        """Every token that the pipeline gave, also those that the client does not get."""
        self.ended_early = False
        """Whether the host ended it, so that it holds its blocks until `has_left`."""
        self._stopped = False
        self._request = request
        self._handle = handle
        self._labels = labels
        self._tokens: list[int] = []
        self._log_probs: list[float] = []
        self._sent = 0
        self._single_stops = single_stops(request)
        self._stop_words = StopWords(request.stop_words)
        # The pipeline itself stops at single tokens and at the length. Reading every token as it
        # comes costs several per cent of a step, so it is done only where it is needed.
        self._watched = request.streaming or any(len(word) > 1 for word in request.stop_words)

    def advance(self) -> Response | None:
        """Take in the last step; returns a response if one is to be sent now."""
        if self._watched:
            return self._watch()
        handle = self._handle
        if not self.started:
            self.started = handle.can_read()
        if handle.get_status().value == RUNNING:
            return None
        return self._finish()

    def cancel(self) -> Response:
        """End the request now, with the tokens it has so far."""
        self._read()
        self._end()
        return self._response("cancelled")

    def has_left(self) -> bool:
        """Whether a request that ended early has freed its blocks. Ask once after every step."""
        if self._stopped or self._handle.get_status().value != RUNNING:
            return True
        if self._handle.can_read():
            self._end()
        return False

    def _watch(self) -> Response | None:
        seen = len(self._tokens)
        self._read()
        if len(self._tokens) > seen:
            self.started = True
            end = self._stop_words.end(self._tokens, seen)
            if end is not None:
                if self._handle.get_status().value == RUNNING:
                    self._end()
                del self._tokens[end:]  # never hand out what came after the stop word
                del self._log_probs[end:]
                return self._response("stop")
        if self._handle.get_status().value != RUNNING:
            return self._finish()
        if self._request.streaming and len(self._tokens) > self._sent:
            return self._response(None)
        return None

    def _finish(self) -> Response:
        if self._handle.get_status().value != FINISHED:
            return unavailable("the pipeline dropped the request; its KV cache was full")
        if self._handle.can_read():
            self._take(self._handle.read_all())
        last = self._tokens[-1]
        if last == self._request.end_id:
            self._tokens.pop()
            del self._log_probs[len(self._tokens) :]
            return self._response("end_id")
        return self._response("stop" if last in self._single_stops else "length")

    def _end(self) -> None:
        # NOTE: a prompt that is stopped half computed stays in the prefix cache as if it were
        # whole (openvino-genai 2026.4), and the next request with the same prefix gets a wrong
        # answer. So a prompt is always computed to its end, which its first token shows.
        self.ended_early = True
        if self._tokens or self._handle.can_read():
            self._handle.stop()
            self._stopped = True

    def _read(self) -> None:
        while self._handle.can_read():
            self._take(self._handle.read().values())

    def _take(self, outputs: Iterable[Any]) -> None:
        (output,) = outputs  # one sequence per request
        self.generated += output.generated_ids
        self._tokens += output.generated_ids
        if self._request.return_log_probs or self._labels:
            self._log_probs += output.generated_log_probs

    def _response(self, reason: FinishReason | None) -> Response:
        new = self._tokens[self._sent :]
        if self._request.streaming:
            self._sent = len(self._tokens)
        logits = None
        if self._labels and new:
            if self._request.return_generation_logits:
                logits = label_logits(new[0], self._log_probs[0])
            new = [self._labels[row] for row in new]  # the rows of the sliced head are labels
        return Response(
            token_ids=new,
            log_probs=list(self._log_probs) if self._request.return_log_probs else None,
            label_logits=logits,
            finish_reason=reason,
        )
