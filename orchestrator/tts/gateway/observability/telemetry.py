"""Traces of requests for an OpenTelemetry collector, over OTLP/HTTP.

The only module that knows OpenTelemetry, and the names of its semantic conventions for generative
AI (schema 1.44, in development). They are written out here: the package that has them as constants
moves them between releases. A request becomes a span with a child for each of its stages, under the
caller's span if it sent a `traceparent`. No prompt and no answer is sent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tts.base.errors import ConfigError
from tts.base.extras import how_to_install

from .record import STAGES, ServedRequest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.util.types import Attributes

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
CLOSE_S = 3.0
"""How long the end of a gateway waits for a collector; the exporter would try for 20 s."""
OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/responses": "chat",
}
"""`gen_ai.operation.name` of an endpoint; requests to others leave no trace."""


def telemetry_of(endpoint: str | None, service: str) -> Telemetry | None:
    """Telemetry to the collector at a base URL, or where OpenTelemetry's variables say; else None.

    `service` is the deployment's name. Raises ConfigError without the packages of the extra `otel`.
    """
    if not endpoint and not any(os.environ.get(name) for name in ENDPOINT_VARIABLES):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise ConfigError(
            f"Traces are to be sent to a collector, but OpenTelemetry is not installed: {error}.",
            hint=f"Install it: {how_to_install('otel')}\nOr name no endpoint.",
        ) from error
    traces = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
    return Telemetry(service, OTLPSpanExporter(endpoint=traces))


class Telemetry:
    """Turns records of ended requests into spans, and sends them by itself."""

    def __init__(self, service: str, exporter: SpanExporter) -> None:
        from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create(
            {SERVICE_NAME: f"tts-gateway/{service}", SERVICE_INSTANCE_ID: f"{os.getpid()}"}
        )
        self._tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._tracing.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._tracing.get_tracer("tts.gateway")
        self._propagator = TraceContextTextMapPropagator()

    def write(self, records: Sequence[ServedRequest]) -> None:
        """Take records of ended requests; a sink of the writer."""
        for record in records:
            if operation := OPERATIONS.get(record.endpoint):
                self._trace(record, operation)

    def close(self) -> None:
        """Send what has not been sent yet, as far as the collector takes it within `CLOSE_S`."""
        end = threading.Thread(target=self._tracing.shutdown, daemon=True)
        end.start()
        end.join(CLOSE_S)

    def _trace(self, record: ServedRequest, operation: str) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        carrier = {"traceparent": record.trace_parent} if record.trace_parent else {}
        span = self._tracer.start_span(
            f"{operation} {record.model}".rstrip(),
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            attributes=_span_attributes(record, operation),
            start_time=_unix_ns(record, record.t0),
        )
        if record.outcome == "failed":
            span.set_status(Status(StatusCode.ERROR))
        inside = set_span_in_context(span)
        for stage, begin, end in STAGES:
            t_begin, t_end = getattr(record, begin), getattr(record, end)
            if t_begin is not None and t_end is not None:
                child = self._tracer.start_span(
                    f"tts.gateway.{stage}", context=inside, start_time=_unix_ns(record, t_begin)
                )
                child.end(_unix_ns(record, t_end))
        span.end(_unix_ns(record, record.t0 if record.t6 is None else record.t6))


def _span_attributes(record: ServedRequest, operation: str) -> Attributes:
    attributes: dict[str, str | int | float | bool | None] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "tts",
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.response.id": record.id,
        "gen_ai.request.stream": record.stream,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.answer_tokens + record.search_tokens,  # as billed
        "gen_ai.usage.reasoning.output_tokens": record.search_tokens,
        "gen_ai.response.time_to_first_chunk": record.seconds("t0", "t5"),
        "http.request.method": "POST",
        "http.route": record.endpoint,
        "http.response.status_code": record.status,
        "error.type": None if record.outcome == "ok" else record.error or record.outcome,
        "tts.strategy": record.strategy,
        "tts.replica": record.replica,
        "tts.key": record.key,
        "tts.verifier_tokens": record.verifier_tokens,
        "tts.gateway.own_latency": record.own_latency_s(),
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _unix_ns(record: ServedRequest, monotonic: float) -> int:
    return int(record.time * 1e9) + round((monotonic - record.t0) * 1e9)
