"""The gateway's metrics, by their names in Prometheus, each with its help.

Values of labels are names that are served here, and words of ours: no client can make series.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache, partial
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from .record import STAGES, ServedRequest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Bounds for what an engine or a whole search takes."""
_SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
"""Bounds for what the gateway itself takes, and for the time between tokens."""
_TOKENS = (16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each of ours


class GatewayMetrics(Collector):
    """Totals of the requests that have ended, and of those that go on."""

    def __init__(
        self, going_on: Collection[ServedRequest], lost_records: Callable[[], int]
    ) -> None:
        self.registry = registry = CollectorRegistry()
        self._going_on = going_on
        gauge = partial(Gauge, registry=registry)

        def series(kind: Any, name: str, about: str, *labels: str, **options: Any) -> Any:
            """The series of a metric by its labels, each looked up once."""
            metric = kind(name, about, labels, registry=registry, **options)
            return lru_cache(maxsize=4096)(metric.labels)

        histogram = partial(series, Histogram)
        about, name = "Requests that have ended.", "tts_gateway_requests_total"
        self._requests = series(Counter, name, about, "endpoint", "model", "outcome", "status")
        about = "Tokens by kind: prompt, answer, search (generated, not in the answer), verifier."
        self._tokens = series(Counter, "tts_gateway_tokens_total", about, "model", "kind")
        about = "From arrival to the last byte (t6-t0)."
        name = "tts_gateway_request_seconds"
        self._duration = histogram(name, about, "model", "outcome", buckets=_SECONDS)
        about = "From arrival to the first byte of an answer (t5-t0): of a stream, its first token."
        name = "tts_gateway_time_to_first_byte_seconds"
        self._first_byte = histogram(name, about, "model", buckets=_SECONDS)
        about = "Between the tokens of a streamed answer, on average over the answer."
        name = "tts_gateway_time_per_output_token_seconds"
        self._per_token = histogram(name, about, "model", buckets=_SHORT)
        about = "What the gateway added before the first byte: (t2-t0) + (t5-t3)."
        self._own_latency = histogram(
            "tts_gateway_own_latency_seconds", about, "model", buckets=_SHORT
        )
        about = "Time in each stage: " + ", ".join(f"{s} ({e}-{b})" for s, b, e in STAGES) + "."
        buckets = *_SHORT, 5, 30, 120, 600
        self._stage = histogram("tts_gateway_stage_seconds", about, "stage", buckets=buckets)
        about = "Tokens of one request, prompt, answer and search together."
        self._request_tokens = histogram(
            "tts_gateway_request_tokens", about, "model", buckets=_TOKENS
        )
        registry.register(self)
        gauge(
            "tts_gateway_requests_queued",
            "Requests that were admitted and of which nothing has been sent to an engine yet.",
        ).set_function(lambda: sum(r.t1 is not None and r.t2 is None for r in going_on))
        gauge(
            "tts_gateway_log_records_lost",
            "Records that could not be written to the request log, since the start.",
        ).set_function(lost_records)

    def count(self, record: ServedRequest) -> None:
        """Count a request that has ended."""
        model = record.model
        self._requests(record.endpoint, model, record.outcome, str(record.status)).inc()
        for kind in ("prompt", "answer", "search", "verifier"):
            if tokens := getattr(record, f"{kind}_tokens"):
                self._tokens(model, kind).inc(tokens)
        if (took := record.seconds("t0", "t6")) is not None:
            self._duration(model, record.outcome).observe(took)
        for stage, begin, end in STAGES:
            if (took := record.seconds(begin, end)) is not None:
                self._stage(stage).observe(took)
        if record.t3 is None:
            return  # nothing of an engine's in it
        if (took := record.seconds("t0", "t5")) is not None:
            self._first_byte(model).observe(took)
        if (took := record.own_latency_s()) is not None:
            self._own_latency(model).observe(took)
        if (took := record.time_per_token_s()) is not None:
            self._per_token(model).observe(took)
        self._request_tokens(model).observe(record.spent_tokens)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The series that are counted when they are asked for."""
        in_flight = GaugeMetricFamily(
            "tts_gateway_requests_in_flight",
            "Requests that have arrived and not ended.",
            labels=["model"],
        )
        for model, count in Count(record.model for record in self._going_on).items():
            in_flight.add_metric([model], count)
        yield in_flight
