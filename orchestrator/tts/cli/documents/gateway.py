"""What `tts gateway requests` prints with `--json`."""

from __future__ import annotations

from tts.gateway.observability.record import ServedRequest


class LoggedRequest(ServedRequest, kw_only=True):
    """A request that a gateway has had.
    Its t1 to t6 are seconds since it arrived, when it was admitted, sent to an engine, first
    answered, past the filters, and when the first and the last byte were sent.
    """

    gateway_latency_s: float | None = None
    """What the gateway itself added to the time to the first byte."""

    @classmethod
    def of(cls, record: ServedRequest) -> LoggedRequest:
        """A request with values derived from its times."""
        values = {name: getattr(record, name) for name in ServedRequest.__struct_fields__}
        return cls(**values, gateway_latency_s=record.own_latency_s())
