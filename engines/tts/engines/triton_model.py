"""The Triton Python model of an engine of target openvino, which runs in a process of its own.

Triton imports this through the repository's model.py.

Requests are read, checked and handed to the host in Triton's thread; every response is sent from
one thread of the host, because the backend crashes when several threads send.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import triton_python_backend_utils as pb_utils

from tts.base.errors import RequestError

from . import wire
from .engine_messages import OPENING, decode_opening
from .engine_thread import EngineThread
from .generate_request import EngineLimits, GenerateRequest
from .loading import COMPILING, OPEN, READING, Stage, read_weights, tell
from .request_tensors import Tensors, is_stop, parse_request, rows_of
from .responses import Response, failure_of, response_tensors, row_tensors, score_tensors
from .statistics import FAMILIES, Metric, Statistics, TokenLengths, gauges

_CODES = {
    wire.Failure.REFUSED: "INVALID_ARG",
    wire.Failure.UNAVAILABLE: "UNAVAILABLE",
    wire.Failure.CANCELLED: "CANCELLED",
    wire.Failure.IN_USE: "UNAVAILABLE",
}
"""Triton's names, for clients of any kind; ours reads the text, all that a stream carries."""
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
MAX_ROWS = 1 << 30
"""Rows that a client may number."""
GATHER_S = 0.012
"""How long the answer to a row may wait for others: each message costs four processes a wake-up,
and a client that is behind takes them one by one."""
GATHERED = 1 / 2
"""The share of a client's unanswered rows that is worth a message at once."""
MUST_BE_REQUESTED = {"output_ids", "sequence_length"}


@dataclass(eq=False)
class _Client:
    """A client with rows that are not answered yet: it gets its answers by its latest request.

    A client of one request to a model that is not decoupled; it is answered at once.
    """

    name: str
    sender: Any
    outputs: set[str]
    open_rows: int = 0
    """Rows that are not answered."""
    ready: list[tuple[int, Tensors | str]] = field(default_factory=list)
    """Answers that are not sent: by row, its tensors or its error."""

    def is_gone(self) -> bool:
        """Whether the answers are no longer awaited."""
        return bool(self.sender.is_cancelled())


class TritonPythonModel:
    """One engine behind Triton's Python backend: `generator`, or `prm`.

    `prm` has scores alone, or writes as `generator` does.
    """

    def initialize(self, args: Mapping[str, str]) -> None:
        """Open the engine named by the model configuration."""
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
        parameters = json.loads(args["model_config"])["parameters"]
        opening = decode_opening(parameters[OPENING]["string_value"])
        self.serve(args, opening.limits)
        name = args["model_name"]
        tell(Stage(name, READING, 0.0))
        for weights in opening.engine_dir.glob("*.bin"):
            read_weights(weights, lambda fraction: tell(Stage(name, READING, fraction)))
        tell(Stage(name, COMPILING))
        self._host = EngineThread(opening, on_statistics=self._publish_statistics)
        self._host.call(partial(self._publish_statistics, Statistics()))
        tell(Stage(name, OPEN))

    def serve(self, args: Mapping[str, str], limits: EngineLimits) -> None:
        """Prepare for requests; the engine, which may answer them at once, is opened afterwards."""
        self._limits = limits
        # an engine that gives scores alone answers with them by themselves
        self._must_be_requested = MUST_BE_REQUESTED if limits.writes else set()
        self._running: dict[str, int] = {}
        """Tickets, by the id of the request or of the row."""
        self._clients: dict[str, _Client] = {}
        """Clients that send requests by rows, by the prefix of their ids."""
        self._starting = threading.Lock()
        """Held while both change, in Triton's thread and in the host's."""
        self._input_lengths = TokenLengths("nv_llm_input_token_len", "total_input_tokens")
        self._output_lengths = TokenLengths("nv_llm_output_token_len", "total_output_tokens")
        self._metrics = Metrics({"model": args["model_name"], "version": args["model_version"]})

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
        if missing := self._must_be_requested.union(wire.ROW_OUTPUTS if by_rows else ()) - outputs:
            names = " and ".join(sorted(missing))
            raise RequestError(f"{names} must be among the requested outputs")
        if by_rows:
            first = _first_row(parameters[wire.FIRST_ROW])
            name = _client_of(request_id, first) if self._limits.decoupled else ""
            self._start_rows(rows_of(tensors), first, _Client(name, sender, outputs))
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
            self._send(sender, request, response, outputs)
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

    def _start_rows(self, rows: Sequence[Tensors], first: int, client: _Client) -> None:
        """Start the rows of a request; `client` is who has sent it, as if this were its first."""
        requests, refused = [], []
        for number, tensors in enumerate(rows, first):
            try:
                requests.append((number, _row_request(tensors, self._limits)))
            except RequestError as error:
                text = wire.encode_failure(wire.Failure.REFUSED, error.message)
                refused.append((number, text))
        with self._starting:
            latest, client = client, self._clients.get(client.name, client)
            submitted = [
                (request, partial(self._take_row, client, number, request))
                for number, request in requests
            ]
            tickets = self._host.submit_all(submitted, client.is_gone)
            if latest is not client:
                before, client.sender = client.sender, latest.sender
                client.outputs = latest.outputs
                # only now: a sender that is asked anything after its end makes the server crash
                self._host.call(partial(before.send, flags=FINAL))
            client.open_rows += len(rows)
            if client.name:
                self._clients[client.name] = client
                for (number, _), ticket in zip(requests, tickets, strict=True):
                    self._running[wire.row_id(client.name, number)] = ticket
            if refused:
                self._keep(client, refused)

    def _take_row(
        self, client: _Client, number: int, request: GenerateRequest, response: Response
    ) -> None:
        answer = self._answer_to(request, response)
        if response.error is None:
            self._input_lengths.observe(len(request.input_ids))
            self._output_lengths.observe(len(response.token_ids))
        row = answer if isinstance(answer, dict) else wire.encode_failure(*answer)
        with self._starting:
            self._running.pop(wire.row_id(client.name, number), None)
            self._keep(client, [(number, row)])

    def _keep(self, client: _Client, rows: Sequence[tuple[int, Tensors | str]]) -> None:
        """Keep answers until some are here, or one has waited; until all are, of one request."""
        was_empty = not client.ready
        client.ready += rows
        enough = client.open_rows * GATHERED if client.name else client.open_rows
        answer = partial(self._answer_rows, client)
        if len(client.ready) >= enough:
            self._host.call(answer)  # after all that came with them
        elif was_empty and client.name:
            self._host.call(answer, GATHER_S)

    def _answer_rows(self, client: _Client) -> None:
        with self._starting:
            rows, client.ready = client.ready, []
            if not rows:  # they have been sent since
                return
            client.open_rows -= len(rows)
            sender, outputs = client.sender, client.outputs
            flags = 0 if client.open_rows else FINAL
            if client.name and flags == FINAL:
                del self._clients[client.name]
        tensors = _tensors(row_tensors(rows), outputs)
        sender.send(pb_utils.InferenceResponse(output_tensors=tensors), flags=flags)

    def _send(
        self, sender: Any, request: GenerateRequest, response: Response, outputs: set[str]
    ) -> None:
        answer = self._answer_to(request, response)
        if not isinstance(answer, dict):
            failure, sentence = answer
            _send_error(sender, sentence, failure)
            return
        flags = FINAL if response.final else 0
        tensors = _tensors(answer, outputs)
        sender.send(pb_utils.InferenceResponse(output_tensors=tensors), flags=flags)

    def _answer_to(
        self, request: GenerateRequest, response: Response
    ) -> dict[str, Any] | tuple[wire.Failure, str]:
        """The output tensors of a response, or why there are none."""
        if failure := failure_of(response):
            return failure
        try:
            if not self._limits.writes:
                return score_tensors(response)
            return response_tensors(request, response)
        except RequestError as error:
            return wire.Failure.REFUSED, error.message

    def _stop(self, request_id: str, sender: Any) -> None:
        ticket = self._running.get(request_id)
        if ticket is None:
            _send_error(sender, f"no running request has the id {request_id!r}; nothing stopped")
        else:
            self._host.cancel(ticket)
            sender.send(flags=FINAL)

    def _publish_statistics(self, statistics: Statistics) -> None:
        """Bring the gauges to these values, and the histograms up to date."""
        self._metrics.bring(gauges(statistics, self._limits), pb_utils.MetricFamily.GAUGE)
        for lengths in (self._input_lengths, self._output_lengths):
            self._metrics.bring(lengths.counters(), pb_utils.MetricFamily.COUNTER)


def _first_row(first: Any) -> int:
    if not isinstance(first, int) or not 0 <= first < MAX_ROWS:
        raise RequestError(f"{wire.FIRST_ROW} is {first!r:.100}; it must be in 0..{MAX_ROWS - 1}")
    return first


def _client_of(request_id: str, first: int) -> str:
    """The client that sends a request by rows."""
    client_id = request_id.rpartition("-")[0]
    if request_id != wire.rows_id(client_id, first) or not client_id:
        raise RequestError(f"the id is {request_id!r:.100}; by rows it must be CLIENT-{first}+")
    return client_id


def _row_request(tensors: Tensors, limits: EngineLimits) -> GenerateRequest:
    request = parse_request(tensors, limits)
    if request.streaming:
        raise RequestError("streaming is not supported in a request by rows; send it by itself")
    return request


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

    def bring(self, values: dict[Metric, float], kind: Any) -> None:
        """Bring every metric of a kind, gauges or counters, to its value."""
        for metric, value in values.items():
            before = self._values.get(metric)
            if before != value:
                self._values[metric] = value
                in_triton = self._in_triton(metric, kind)
                if kind == pb_utils.MetricFamily.GAUGE:
                    in_triton.set(value)
                else:
                    in_triton.increment(value - (before or 0))

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
