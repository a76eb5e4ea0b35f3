"""What an engine did in one iteration, with its running totals: plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statistics:
    """One iteration of an engine, with running totals. Token counts are exact except where said."""

    iteration: int = 0
    timestamp: float = 0.0
    """Unix time when it ended, seconds."""
    monotonic: float = 0.0
    """The same moment on the machine's monotonic clock (CLOCK_MONOTONIC), seconds since its boot:
    every process of the machine reads the same one, and nobody sets it."""
    seconds: float = 0.0
    """How long the pipeline took for it."""
    active: int = 0
    """Requests known to the engine: scheduled, admitted or queued."""
    queued: int = 0
    """Requests not admitted yet."""
    scheduled: int = 0
    """Requests that took part in this iteration."""
    context_requests: int = 0
    """Scheduled requests whose prompt is not computed yet."""
    generation_requests: int = 0
    """Scheduled requests that generated one token each."""
    context_tokens: int = 0
    """Tokens of the prompts completed in this iteration. Each prompt counts fully and once: the
    pipeline reports neither how it was split over iterations nor how much of it was reused. Prompts
    of requests cancelled before that are left out."""
    generated_tokens: int = 0
    """Tokens generated in this iteration, the first ones of completed prompts included."""
    blocks_used: int = 0
    """KV blocks in use, without blocks kept only for reuse."""
    blocks_reserved: int = 0
    """KV blocks reserved for the worst case of active requests."""
    requests_total: int = 0
    """Requests answered since start, failed ones included."""
    input_tokens_total: int = 0
    output_tokens_total: int = 0
