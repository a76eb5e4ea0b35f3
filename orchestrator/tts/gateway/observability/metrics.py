"""The gateway's metrics, by their names in Prometheus. docs/gateway-operations.md lists them."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Callable, Collection, Mapping, Sequence

from .prometheus import Counter, Gauge, Histogram, Labels, Metric, exposition
from .record import STAGES, RequestRecord

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Of what an engine or a whole search takes."""
_SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
"""Of what the gateway itself takes, and of the time between tokens."""
_TOKENS = (16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)


class GatewayMetrics:
    """What the requests that have ended, and those that go on, add up to."""

    def __init__(self, going_on: Collection[RequestRecord], lost: Callable[[], int]) -> None:
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
        self._metrics: list[Metric] = [
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

    def count(self, record: RequestRecord) -> None:
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

    def exposition(self) -> str:
        """All of them, as Prometheus scrapes them."""
        return exposition(self._metrics)
