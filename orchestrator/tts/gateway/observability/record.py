"""One request, from its arrival to its last byte.

| time | when |
|---|---|
| t0 | it arrived |
| t1 | it was admitted: read, its key known, within its limits, its prompt through the filters |
| t2 | its first request was sent to an engine |
| t3 | the engine gave the first output that reaches the client |
| t4 | that came out of the output filters |
| t5 | the first byte of the answer was handed to the HTTP server |
| t6 | the last byte was |

Whoever handles the request sets them, by `time.monotonic()`. What it never reached stays None.
"""

from __future__ import annotations

import time as clock
from typing import Literal

import msgspec

Outcome = Literal["ok", "refused", "filtered", "cancelled", "deadline", "failed"]
"""refused: by the gateway, as wrong or not allowed; cancelled: by the client, who went away;
failed: an engine or the gateway broke."""

STAGES = (
    ("admission", "t0", "t1"),
    ("queue", "t1", "t2"),
    ("engine", "t2", "t3"),
    ("filters", "t3", "t4"),
    ("encoding", "t4", "t5"),
    ("sending", "t5", "t6"),
)
"""Each stage with the times between which it lies."""


class ServedRequest(msgspec.Struct, kw_only=True):
    """One request. Mutable: filled in while it is handled; no secret is in it."""

    id: str
    """The id in its `x-request-id`, and of the answer."""
    endpoint: str
    """The path as routed, such as /v1/chat/completions; never what a client made up."""
    time: float
    """Unix time of t0."""
    t0: float
    """Monotonic seconds; 0 in a record that was read from disk, whose other times count from it."""
    t1: float | None = None
    t2: float | None = None
    t3: float | None = None
    t4: float | None = None
    t5: float | None = None
    t6: float | None = None
    model: str = ""
    """The name in `/v1/models`; empty until it is known to exist."""
    strategy: str | None = None
    """The strategy of a search; None for plain generation."""
    stream: bool = False
    key: str | None = None
    """The id of its API key."""
    replica: str | None = None
    outcome: Outcome = "failed"
    status: int = 0
    """The status of HTTP; 200 also when a stream broke later, which `outcome` tells."""
    error: str | None = None
    """The kind of error, such as rate_limit_exceeded: a word, no text of the client's."""
    prompt_tokens: int = 0
    answer_tokens: int = 0
    search_tokens: int = 0
    """Generated, but not part of the answer."""
    verifier_tokens: int = 0
    prompt: str | None = None
    """None unless the gateway was asked to keep prompts and answers."""
    answer: str | None = None
    trace_parent: str | None = None
    """The W3C `traceparent` header that it came with."""
    client: str | None = None
    """The address that it came from; None if addresses are not kept."""

    def own_latency_s(self, now: float | None = None) -> float | None:
        """Seconds that the gateway itself added before the first byte: (t2-t0) + (t5-t3).

        `now` is t5 while that has not come.
        """
        t5 = now if self.t5 is None else self.t5
        if self.t2 is None or self.t3 is None or t5 is None:
            return None
        return (self.t2 - self.t0) + (t5 - self.t3)

    def gateway_ms(self) -> float | None:
        """The gateway's own latency so far in milliseconds, for an answer that is being written."""
        own = self.own_latency_s(clock.monotonic())
        return None if own is None else round(1000 * own, 3)

    def seconds(self, begin: str, end: str) -> float | None:
        """Between two of its times, by their names; None if it did not reach both."""
        first: float | None = getattr(self, begin)
        last: float | None = getattr(self, end)
        return None if first is None or last is None else last - first

    def time_per_token_s(self) -> float | None:
        """Between two tokens of a streamed answer after its first, on average."""
        sending = self.seconds("t5", "t6")
        if not self.stream or sending is None or self.answer_tokens < 2:
            return None
        return sending / (self.answer_tokens - 1)
