"""The verifier's batches, told from the times at which their requests were sent."""

from __future__ import annotations

from dataclasses import dataclass

from .records import RequestRecord

BATCH_GAP_S = 1e-3
"""Verifier requests sent no further apart than this count as one batch."""


@dataclass(slots=True)
class Batches:
    """The verifier batches that went out for one reason."""

    batches: int = 0
    requests: int = 0
    tokens: int = 0


class BatchCounter:
    """Counts verifier batches, from requests in the order in which they were sent."""

    def __init__(self) -> None:
        self.by_trigger: dict[str, Batches] = {}
        self._before: RequestRecord | None = None

    def add(self, request: RequestRecord) -> None:
        """Take in the next request; one that was not held back for a batch does not count."""
        if request.trigger is None:
            return
        before, self._before = self._before, request
        together = (
            before is not None
            and before.trigger == request.trigger
            and request.sent - before.sent <= BATCH_GAP_S
        )
        count = self.by_trigger.setdefault(request.trigger, Batches())
        count.batches += not together
        count.requests += 1
        count.tokens += request.prompt_tokens
