"""The gateway's metrics, by their names in Prometheus. docs/guides/gateway.md lists them.

They are counted in dictionaries, which costs a request some microseconds; prometheus_client writes
what a scrape asks for. The series of a metric are bounded: when there are too many, those with new
label values are counted together, under the value `other`. For one thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Count
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from .record import STAGES, ServedRequest

MOST_SERIES = 400
"""Series of one metric at most, without the one for all others."""
OTHER = "other"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Bounds for what an engine or a whole search takes."""
_SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
"""Bounds for what the gateway itself takes, and for the time between tokens."""
_TOKENS = (16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)

Labels = tuple[str, ...]


class Counter:
    """Sums that only grow, one for each combination of label values."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self._sums: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, amount: float, *values: str) -> None:
        """Add to the series with these label values."""
        key = values if values in self._sums else _bounded(values, self._sums)
        self._sums[key] = self._sums.get(key, 0) + amount

    def family(self) -> Metric:
        """All series, as they are now."""
        family = CounterMetricFamily(self.name, self.help, labels=self.labels)
        for values, total in self._sums.items():
            family.add_metric(values, total)
        return family


class Gauge:
    """The result of a function when it is asked: a value for each combination of label values."""

    kind = "gauge"

    def __init__(
        self,
        name: str,
        help: str,
        read: Callable[[], Mapping[Labels, float]],
        labels: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self._read = read

    def family(self) -> Metric:
        """All series, read now."""
        family = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for values, value in list(self._read().items())[:MOST_SERIES]:
            family.add_metric(values, value)
        return family


class Histogram:
    """How often a value was at most each of some bounds, for each combination of label values."""

    kind = "histogram"

    def __init__(
        self, name: str, help: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self._bounds = tuple(bounds)
        self._names = [*map(str, bounds), "+Inf"]
        self._series: dict[Labels, list[float]] = {}
        """The counts between the bounds, above the last, and the sum of all values."""

    def observe(self, value: float, *values: str) -> None:
        """Count a value in the series with these label values."""
        series = self._series.get(values)
        if series is None:
            key = _bounded(values, self._series)
            series = self._series.setdefault(key, [0] * (len(self._bounds) + 2))
        series[bisect_left(self._bounds, value)] += 1
        series[-1] += value

    def family(self) -> Metric:
        """All series, as they are now."""
        family = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for values, series in self._series.items():
            counts = zip(self._names, accumulate(series[:-1]), strict=True)
            family.add_metric(values, list(counts), sum_value=series[-1])
        return family


class GatewayMetrics(Collector):
    """Totals of the requests that have ended, and of those that go on."""

    def __init__(self, going_on: Collection[ServedRequest], lost: Callable[[], int]) -> None:
        self.requests = Counter(
            "tts_gateway_requests_total",
            "Requests that have ended.",
            ("endpoint", "model", "outcome", "status"),
        )
        self.tokens = Counter(
            "tts_gateway_tokens_total",
            "Tokens by kind: prompt, answer, search (generated, not in the answer), verifier.",
            ("model", "kind"),
        )
        self.duration = Histogram(
            "tts_gateway_request_seconds",
            "From arrival to the last byte (t6-t0).",
            _SECONDS,
            ("model", "outcome"),
        )
        self.first_byte = Histogram(
            "tts_gateway_time_to_first_byte_seconds",
            "From arrival to the first byte of an answer (t5-t0): of a stream, its first token.",
            _SECONDS,
            ("model",),
        )
        self.per_token = Histogram(
            "tts_gateway_time_per_output_token_seconds",
            "Between the tokens of a streamed answer, on average over the answer.",
            _SHORT,
            ("model",),
        )
        self.own_latency = Histogram(
            "tts_gateway_own_latency_seconds",
            "What the gateway added before the first byte: (t2-t0) + (t5-t3).",
            _SHORT,
            ("model",),
        )
        self.stage = Histogram(
            "tts_gateway_stage_seconds",
            "Time in each stage: " + ", ".join(f"{s} ({e}-{b})" for s, b, e in STAGES) + ".",
            (*_SHORT, 5, 30, 120, 600),
            ("stage",),
        )
        self.request_tokens = Histogram(
            "tts_gateway_request_tokens",
            "Tokens of one request, prompt, answer and search together.",
            _TOKENS,
            ("model",),
        )
        self._metrics: list[Counter | Gauge | Histogram] = [
            self.requests,
            self.tokens,
            self.duration,
            self.first_byte,
            self.per_token,
            self.own_latency,
            self.stage,
            self.request_tokens,
        ]
        self.add_gauge(
            "tts_gateway_requests_in_flight",
            "Requests that have arrived and not ended.",
            lambda: Count((record.model,) for record in going_on),
            ("model",),
        )
        self.add_gauge(
            "tts_gateway_requests_queued",
            "Requests that were admitted and of which nothing has been sent to an engine yet.",
            lambda: {(): sum(r.t1 is not None and r.t2 is None for r in going_on)},
        )
        self.add_gauge(
            "tts_gateway_log_records_lost",
            "Records that could not be written to the request log, since the start.",
            lambda: {(): lost()},
        )

    @property
    def names(self) -> Mapping[str, tuple[str, Labels]]:
        """Each metric's kind and labels, by its name."""
        return {metric.name: (metric.kind, metric.labels) for metric in self._metrics}

    def add_gauge(
        self,
        name: str,
        help: str,
        read: Callable[[], Mapping[Labels, float]],
        labels: Sequence[str] = (),
    ) -> None:
        """Let `read` be asked at each scrape: a value for each tuple of label values."""
        self._metrics.append(Gauge(name, help, read, labels))

    def count(self, record: ServedRequest) -> None:
        """Count a request that has ended."""
        model = record.model
        self.requests.add(1, record.endpoint, model, record.outcome, str(record.status))
        for kind, tokens in (
            ("prompt", record.prompt_tokens),
            ("answer", record.answer_tokens),
            ("search", record.search_tokens),
            ("verifier", record.verifier_tokens),
        ):
            if tokens:
                self.tokens.add(tokens, model, kind)
        if (took := record.seconds("t0", "t6")) is not None:
            self.duration.observe(took, model, record.outcome)
        for stage, begin, end in STAGES:
            if (took := record.seconds(begin, end)) is not None:
                self.stage.observe(took, stage)
        if record.t3 is None:
            return  # nothing of an engine's in it
        if (took := record.seconds("t0", "t5")) is not None:
            self.first_byte.observe(took, model)
        if (took := record.own_latency_s()) is not None:
            self.own_latency.observe(took, model)
        if (took := record.time_per_token_s()) is not None:
            self.per_token.observe(took, model)
        self.request_tokens.observe(
            record.prompt_tokens + record.answer_tokens + record.search_tokens, model
        )

    def collect(self) -> Iterable[Metric]:
        """All series, as prometheus_client takes them."""
        return [metric.family() for metric in self._metrics]

    def exposition(self) -> str:
        """All series in Prometheus' text format, version 0.0.4."""
        return generate_latest(self).decode()


def _bounded(values: Labels, series: Mapping[Labels, object]) -> Labels:
    if values in series or len(series) < MOST_SERIES:
        return values
    return (OTHER,) * len(values)
