"""Traces and metrics of requests for an OpenTelemetry collector, over OTLP/HTTP.

The only module that knows OpenTelemetry, and the names of its semantic conventions for generative
AI (schema 1.44, in development). They are written out here: the package that has them as constants
moves them between releases. A request becomes a span with a child for each of its stages, under the
caller's span if it sent a `traceparent`. No prompt and no answer is sent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tts.build.errors import ConfigError
from tts.build.extras import how_to_install

from .record import STAGES, ServedRequest

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.util.types import Attributes

ENDPOINT_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
CLOSE_S = 3.0
"""How long the end of a gateway waits for a collector; the exporters would try for 20 s."""
OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/responses": "chat",
}
"""`gen_ai.operation.name` of an endpoint; requests to others leave no trace."""

# The bounds that the conventions recommend.
_DURATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
_PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS = tuple(4**power for power in range(14))


def telemetry_of(endpoint: str | None, service: str) -> Telemetry | None:
    """Telemetry to the collector at a base URL, or where OpenTelemetry's variables say; else None.

    `service` is the deployment's name. Raises ConfigError without the packages of the extra `otel`.
    """
    if not endpoint and not any(os.environ.get(name) for name in ENDPOINT_VARIABLES):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise ConfigError(
            f"Traces are to be sent to a collector, but OpenTelemetry is not installed: {error}.",
            hint=f"Install it: {how_to_install('otel')}\nOr name no endpoint.",
        ) from error
    if endpoint:
        base = endpoint.rstrip("/")
        return Telemetry(
            service,
            OTLPSpanExporter(endpoint=f"{base}/v1/traces"),
            OTLPMetricExporter(endpoint=f"{base}/v1/metrics"),
        )
    return Telemetry(service, OTLPSpanExporter(), OTLPMetricExporter())


class Telemetry:
    """Turns records of ended requests into spans and measurements, and sends them by itself."""

    def __init__(self, service: str, spans: SpanExporter, metrics: MetricExporter) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create(
            {SERVICE_NAME: f"tts-gateway/{service}", SERVICE_INSTANCE_ID: f"{os.getpid()}"}
        )
        self._tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._tracing.add_span_processor(BatchSpanProcessor(spans))
        self._tracer = self._tracing.get_tracer("tts.gateway")
        self._propagator = TraceContextTextMapPropagator()
        self._metering = MeterProvider(
            [PeriodicExportingMetricReader(metrics)], resource=resource, shutdown_on_exit=False
        )
        meter = self._metering.get_meter("tts.gateway")

        def histogram(name: str, unit: str, what: str, bounds: Sequence[float]) -> Histogram:
            return meter.create_histogram(
                name, unit, what, explicit_bucket_boundaries_advisory=bounds
            )

        self._duration = histogram(
            "gen_ai.server.request.duration", "s", "From arrival to the last byte.", _DURATION
        )
        self._first_token = histogram(
            "gen_ai.server.time_to_first_token",
            "s",
            "From arrival to the first byte of the answer.",
            _FIRST_TOKEN,
        )
        self._per_token = histogram(
            "gen_ai.server.time_per_output_token",
            "s",
            "Between the tokens of a streamed answer, on average over the answer.",
            _PER_TOKEN,
        )
        self._usage = histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens of a request.", _TOKENS
        )

    def write(self, records: Sequence[ServedRequest]) -> None:
        """Take records of ended requests; a sink of the writer."""
        for record in records:
            if operation := OPERATIONS.get(record.endpoint):
                self._trace(record, operation)
                self._measure(record, operation)

    def close(self) -> None:
        """Send what has not been sent yet, as far as the collector takes it within `CLOSE_S`."""
        due = time.monotonic() + CLOSE_S
        ends = [
            threading.Thread(target=provider.shutdown, daemon=True)
            for provider in (self._tracing, self._metering)
        ]
        for end in ends:
            end.start()
        for end in ends:
            end.join(max(0.0, due - time.monotonic()))

    def _trace(self, record: ServedRequest, operation: str) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        span = self._tracer.start_span(
            f"{operation} {record.model}".rstrip(),
            context=self._caller(record),
            kind=SpanKind.SERVER,
            attributes=_span_attributes(record, operation),
            start_time=_unix_ns(record, record.t0),
        )
        if record.outcome == "failed":
            span.set_status(Status(StatusCode.ERROR))
        inside = set_span_in_context(span)
        for stage, begin, end in STAGES:
            begun, ended = getattr(record, begin), getattr(record, end)
            if begun is not None and ended is not None:
                child = self._tracer.start_span(
                    f"tts.gateway.{stage}", context=inside, start_time=_unix_ns(record, begun)
                )
                child.end(_unix_ns(record, ended))
        span.end(_unix_ns(record, record.t0 if record.t6 is None else record.t6))

    def _caller(self, record: ServedRequest) -> Context:
        carrier = {"traceparent": record.trace_parent} if record.trace_parent else {}
        return self._propagator.extract(carrier)

    def _measure(self, record: ServedRequest, operation: str) -> None:
        common = _common_attributes(record, operation)
        kind = {**common, "error.type": record.error or record.outcome}
        if (took := record.seconds("t0", "t6")) is not None:
            self._duration.record(took, common if record.outcome == "ok" else kind)
        if record.outcome != "ok":
            return
        if (took := record.seconds("t0", "t5")) is not None:
            self._first_token.record(took, common)
        if (took := record.time_per_token_s()) is not None:
            self._per_token.record(took, common)
        self._usage.record(record.prompt_tokens, {**common, "gen_ai.token.type": "input"})
        self._usage.record(_generated(record), {**common, "gen_ai.token.type": "output"})


def _common_attributes(record: ServedRequest, operation: str) -> dict[str, str]:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "tts",
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
    }


def _span_attributes(record: ServedRequest, operation: str) -> Attributes:
    found: dict[str, str | int | float | bool | None] = {
        **_common_attributes(record, operation),
        "gen_ai.response.id": record.id,
        "gen_ai.request.stream": record.stream,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": _generated(record),
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
    return {name: value for name, value in found.items() if value is not None}


def _generated(record: ServedRequest) -> int:
    """Output tokens as they are billed: those of the search that are in no answer, too."""
    return record.answer_tokens + record.search_tokens


def _unix_ns(record: ServedRequest, monotonic: float) -> int:
    return int(record.time * 1e9) + round((monotonic - record.t0) * 1e9)
