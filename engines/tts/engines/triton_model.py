"""The Triton Python model of an engine, for `generator` and `prm_engine` alike, whatever runs it.

Requests are read, checked and handed to the host in Triton's thread; every response is sent from
one thread of the host, because the backend crashes when several threads send.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import triton_python_backend_utils as pb_utils

from tts.build.errors import RequestError

from . import wire
from .generate_request import GenerateRequest, Limits, Tensors, is_stop, parse_request, rows_of
from .responses import OnResponse, Response, failure_of, response_tensors, row_tensors
from .statistics import FAMILIES, Metric, TokenLengths

_CODES = {
    wire.Failure.REFUSED: "INVALID_ARG",
    wire.Failure.UNAVAILABLE: "UNAVAILABLE",
    wire.Failure.CANCELLED: "CANCELLED",
    wire.Failure.IN_USE: "UNAVAILABLE",
}
"""Triton's names, for clients of any kind; ours reads the text, all that a stream carries."""
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
MOST_ROWS = 1 << 30
"""Rows that a client may number."""
MUST_BE_REQUESTED = {"output_ids", "sequence_length"}


class Host(Protocol):
    """What runs requests: one engine, and one thread of this process that answers them."""

    def submit(
        self,
        request: GenerateRequest,
        on_response: OnResponse,
        is_cancelled: Callable[[], bool],
        *,
        cold: bool,
    ) -> int:
        """Queue a request; `on_response` is called from the host's thread until one is final.

        With `cold` the prefix cache is emptied before, or the request refused.
        """

    def submit_all(
        self,
        requests: Sequence[tuple[GenerateRequest, OnResponse]],
        is_cancelled: Callable[[], bool],
        *,
        cold: bool = False,
    ) -> list[int]:
        """Queue requests of one client together; their tickets."""

    def cancel(self, ticket: int) -> None:
        """End a request with the tokens it has."""

    def call(self, function: Callable[[], None]) -> None:
        """Run a function in the host's thread."""

    def close(self) -> None:
        """Fail the remaining requests and end the engine."""


@dataclass(eq=False)
class _Client:
    """A client with rows that are not answered yet: it gets its answers by its latest request."""

    sender: Any
    outputs: set[str]
    left: int
    """Rows that are not answered."""
    ready: list[tuple[int, Tensors | str]] = field(default_factory=list)
    """Answers that are not sent: by row, its tensors or its error."""

    def is_gone(self) -> bool:
        """Whether nobody waits for the answers."""
        return bool(self.sender.is_cancelled())


class EngineModel:
    """One engine behind Triton's Python backend. A subclass opens it in `initialize`."""

    def serve(self, args: Mapping[str, str], limits: Limits) -> None:
        """Prepare for requests; the host, which may answer them at once, is opened afterwards."""
        self._limits = limits
        self._running: dict[str, int] = {}
        """Tickets, by the id of the request or of the row."""
        self._clients: dict[str, _Client] = {}
        """Those that send requests by rows, by what their ids begin with."""
        self._starting = threading.Lock()
        """Held while both change, in Triton's thread and in the host's."""
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
        parameters = json.loads(request.parameters() or "{}")
        if is_stop(tensors):
            self._check_stop(request_id)
            self._host.call(partial(self._stop, request_id, sender))
            return
        outputs = set(request.requested_output_names())
        by_rows = wire.FIRST_ROW in parameters
        if missing := MUST_BE_REQUESTED.union(wire.ROW_OUTPUTS if by_rows else ()) - outputs:
            named = " and ".join(sorted(missing))
            raise RequestError(f"{named} must be among the requested outputs")
        if by_rows:
            client_id, first = _client_of(request_id, parameters[wire.FIRST_ROW])
            self._start_rows(rows_of(tensors), outputs, client_id, first, sender)
            return
        parsed = parse_request(tensors, self._limits)
        cold = parameters.get(wire.RESET_PREFIX_CACHE) is True
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

    def _start_rows(
        self, rows: Sequence[Tensors], outputs: set[str], client_id: str, first: int, sender: Any
    ) -> None:
        requests, refused = [], []
        for number, tensors in enumerate(rows, first):
            try:
                requests.append((number, _row_request(tensors, self._limits)))
            except RequestError as error:
                text = wire.encode_failure(wire.Failure.REFUSED, error.message)
                refused.append((number, text))
        with self._starting:
            client = self._clients.get(client_id)
            if client is None:
                client = _Client(sender, outputs, 0)
            submitted = [
                (request, partial(self._take_row, client_id, client, number, request))
                for number, request in requests
            ]
            tickets = self._host.submit_all(submitted, client.is_gone)
            if client.sender is not sender:  # which has nothing more to send
                self._host.call(partial(client.sender.send, flags=FINAL))
            client.sender, client.outputs = sender, outputs
            client.left += len(rows)
            self._clients[client_id] = client
            for (number, _), ticket in zip(requests, tickets, strict=True):
                self._running[wire.row_id(client_id, number)] = ticket
            if refused:
                if not client.ready:
                    self._host.call(partial(self._answer_rows, client_id, client))
                client.ready += refused

    def _take_row(
        self,
        client_id: str,
        client: _Client,
        number: int,
        request: GenerateRequest,
        response: Response,
    ) -> None:
        """Keep a row's answer until all that came with it are here."""
        failure = failure_of(response)
        answer = wire.encode_failure(*failure) if failure else response_tensors(request, response)
        if response.error is None:
            self._input_lengths.observe(len(request.input_ids))
            self._output_lengths.observe(len(response.token_ids))
        with self._starting:
            self._running.pop(wire.row_id(client_id, number), None)
            if not client.ready:
                self._host.call(partial(self._answer_rows, client_id, client))
            client.ready.append((number, answer))

    def _answer_rows(self, client_id: str, client: _Client) -> None:
        with self._starting:
            rows, client.ready = client.ready, []
            client.left -= len(rows)
            sender, outputs = client.sender, client.outputs
            flags = 0 if client.left else FINAL
            if flags == FINAL:
                del self._clients[client_id]
        tensors = _tensors(row_tensors(rows), outputs)
        sender.send(pb_utils.InferenceResponse(output_tensors=tensors), flags=flags)

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


def _client_of(request_id: str, first: Any) -> tuple[str, int]:
    """The client that sends a request by rows, and the number of its first row."""
    client_id = request_id.rpartition("-")[0]
    if not isinstance(first, int) or not 0 <= first < MOST_ROWS:
        raise RequestError(f"{wire.FIRST_ROW} is {first!r:.100}; it must be in 0..{MOST_ROWS - 1}")
    if request_id != wire.rows_id(client_id, first) or not client_id:
        raise RequestError(f"the id is {request_id!r:.100}; by rows it must be CLIENT-{first}+")
    return client_id, first


def _row_request(tensors: Tensors, limits: Limits) -> GenerateRequest:
    request = parse_request(tensors, limits)
    if request.streaming:
        raise RequestError("streaming is not supported in a request by rows; send it by itself")
    return request


def _send(sender: Any, request: GenerateRequest, response: Response, outputs: set[str]) -> None:
    if failure := failure_of(response):
        _send_error(sender, failure[1], failure[0])
        return
    tensors = _tensors(response_tensors(request, response), outputs)
    flags = FINAL if response.final else 0
    sender.send(pb_utils.InferenceResponse(output_tensors=tensors), flags=flags)


def _tensors(tensors: Tensors, outputs: set[str]) -> list[Any]:
    return [pb_utils.Tensor(name, data) for name, data in tensors.items() if name in outputs]


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
