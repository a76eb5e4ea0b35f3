"""The Triton Python model of an engine, for `generator` and `prm_engine` alike, whatever runs it.

Requests are read, checked and handed to the host in Triton's thread; every response is sent from
one thread of the host, because the backend crashes when several threads send.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import triton_python_backend_utils as pb_utils

from tts.build.errors import RequestError

from . import wire
from .generate_request import GenerateRequest, Limits, Tensors, is_stop, parse_request
from .responses import Response, response_tensors
from .statistics import FAMILIES, Metric, TokenLengths

_CODES = {
    wire.Failure.REFUSED: "INVALID_ARG",
    wire.Failure.UNAVAILABLE: "UNAVAILABLE",
    wire.Failure.CANCELLED: "CANCELLED",
    wire.Failure.IN_USE: "UNAVAILABLE",
}
"""Triton's names, for clients of any kind; ours reads the text, all that a stream carries."""
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
MUST_BE_REQUESTED = {"output_ids", "sequence_length"}


class Host(Protocol):
    """What runs requests: one engine, and one thread of this process that answers them."""

    def submit(
        self,
        request: GenerateRequest,
        on_response: Callable[[Response], None],
        is_cancelled: Callable[[], bool],
        *,
        cold: bool,
    ) -> int:
        """Queue a request; `on_response` is called from the host's thread until one is final.

        With `cold` the prefix cache is emptied before, or the request refused.
        """

    def cancel(self, ticket: int) -> None:
        """End a request with the tokens it has."""

    def call(self, function: Callable[[], None]) -> None:
        """Run a function in the host's thread."""

    def close(self) -> None:
        """Fail the remaining requests and end the engine."""


class EngineModel:
    """One engine behind Triton's Python backend. A subclass opens it in `initialize`."""

    def serve(self, args: Mapping[str, str], limits: Limits) -> None:
        """Prepare for requests; the host, which may answer them at once, is opened afterwards."""
        self._limits = limits
        self._running: dict[str, int] = {}  # request id -> ticket
        self._starting = threading.Lock()  # until a ticket is among them
        self._input_lengths = TokenLengths("nv_llm_input_token_len", "total_input_tokens")
        self._output_lengths = TokenLengths("nv_llm_output_token_len", "total_output_tokens")
        self._metrics = Metrics({"model": args["model_name"], "version": args["model_version"]})
        self._host: Host

    def execute(self, requests: list[Any]) -> None:
        """Accept requests; each is answered later through its own response sender."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._take(request, sender)
            except RequestError as error:
                self._host.call(partial(_send_error, sender, error.message))
            except Exception as error:
                logging.exception("a request could not be read")
                self._host.call(partial(_send_error, sender, f"Internal error: {error!r}"))

    def finalize(self) -> None:
        """Fail the remaining requests and end the engine."""
        self._host.close()

    def _take(self, request: Any, sender: Any) -> None:
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        request_id = request.request_id()
        if is_stop(tensors):
            self._check_stop(request_id)
            self._host.call(partial(self._stop, request_id, sender))
            return
        outputs = set(request.requested_output_names())
        if not outputs >= MUST_BE_REQUESTED:
            missing = " and ".join(sorted(MUST_BE_REQUESTED - outputs))
            raise RequestError(f"{missing} must be among the requested outputs")
        parsed = parse_request(tensors, self._limits)
        cold = json.loads(request.parameters() or "{}").get(wire.RESET_PREFIX_CACHE) is True
        self._start(parsed, outputs, request_id, sender, cold=cold)

    def _check_stop(self, request_id: str) -> None:
        if not self._limits.decoupled:
            raise RequestError("stop needs a decoupled model: this one cannot answer with nothing")
        if not request_id:
            raise RequestError("stop needs the request id of the request to stop")

    def _start(
        self,
        request: GenerateRequest,
        outputs: set[str],
        request_id: str,
        sender: Any,
        *,
        cold: bool,
    ) -> None:
        generated = 0

        def on_response(response: Response) -> None:
            nonlocal generated
            generated += len(response.token_ids)
            _send(sender, request, response, outputs)
            if response.final:
                with self._starting:
                    if self._running.get(request_id) == ticket:
                        del self._running[request_id]
                if response.error is None:
                    self._input_lengths.observe(len(request.input_ids))
                    self._output_lengths.observe(generated)

        with self._starting:
            ticket = self._host.submit(request, on_response, sender.is_cancelled, cold=cold)
            if request_id:
                self._running[request_id] = ticket

    def _stop(self, request_id: str, sender: Any) -> None:
        ticket = self._running.get(request_id)
        if ticket is None:
            _send_error(sender, f"no running request has the id {request_id!r}; nothing stopped")
        else:
            self._host.cancel(ticket)
            sender.send(flags=FINAL)

    def _publish(self, values: dict[Metric, float]) -> None:
        """Bring gauges to these values, and the histograms up to date."""
        self._metrics.set(values)
        for lengths in (self._input_lengths, self._output_lengths):
            self._metrics.count(lengths.counters())


def _send(sender: Any, request: GenerateRequest, response: Response, outputs: set[str]) -> None:
    flags = FINAL if response.final else 0
    if response.error is not None:
        _send_error(sender, response.error, response.failure)
    elif response.finish_reason == "cancelled":
        # by its client, or by a stop request of any client: never taken for a whole answer
        _send_error(sender, "the request was cancelled", wire.Failure.CANCELLED)
    else:
        tensors: Tensors = response_tensors(request, response)
        wanted = [pb_utils.Tensor(name, data) for name, data in tensors.items() if name in outputs]
        sender.send(pb_utils.InferenceResponse(output_tensors=wanted), flags=flags)


def _send_error(sender: Any, sentence: str, failure: wire.Failure = wire.Failure.REFUSED) -> None:
    error = pb_utils.TritonError(
        wire.encode_failure(failure, sentence), getattr(pb_utils.TritonError, _CODES[failure])
    )
    sender.send(pb_utils.InferenceResponse(output_tensors=[], error=error), flags=FINAL)


class Metrics:
    """Metrics in Triton. Each change costs a round trip to the server, so only changes are sent."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels = labels
        self._families: dict[str, Any] = {}
        self._metrics: dict[Metric, Any] = {}
        self._values: dict[Metric, float] = {}

    def set(self, gauges: dict[Metric, float]) -> None:
        """Bring every gauge to its value."""
        for gauge, value in gauges.items():
            if self._values.get(gauge) != value:
                self._values[gauge] = value
                self._in_triton(gauge, pb_utils.MetricFamily.GAUGE).set(value)

    def count(self, counters: dict[Metric, float]) -> None:
        """Bring every counter to its total."""
        for counter, total in counters.items():
            before = self._values.get(counter)
            if before != total:
                self._values[counter] = total
                in_triton = self._in_triton(counter, pb_utils.MetricFamily.COUNTER)
                in_triton.increment(total - (before or 0))

    def _in_triton(self, metric: Metric, kind: Any) -> Any:
        if metric not in self._metrics:
            name, (_, description) = metric.name, FAMILIES[metric.family]
            if name not in self._families:
                self._families[name] = pb_utils.MetricFamily(
                    name=name, description=description, kind=kind
                )
            labels = {**self._labels, **metric.labels}
            self._metrics[metric] = self._families[name].Metric(labels=labels)
        return self._metrics[metric]
