"""The numbers that answers come to, and the tables that are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from scripts.bench.common import table_of
from tts.gateway.observability import STAGES, ServedRequest

from .systems import Run

AIM_FROM = 64
"""The aims hold at this concurrency and above."""
OURS, FASTAPI, DIRECT = "tts gateway", "FastAPI", "Triton gRPC"


@dataclass(frozen=True)
class Row:
    """One system at one concurrency. Times in milliseconds; nan for what was not measured."""

    server: str
    system: str
    concurrency: int
    requests: int
    ttft: float
    """Median time to the first token."""
    ttft_p99: float
    tbt: float
    """Median over requests of the mean time between two tokens."""
    tbt_p99: float
    requests_s: float
    tokens_s: float
    own: float
    """Median of the gateway's own latency, by its own measure."""
    own_p99: float
    cpu_us: float
    """CPU time of the system's process per token, microseconds."""
    failed: int
    """Requests that timed out or were refused."""


def row_of(server: str, system: str, concurrency: int, runs: Sequence[Run]) -> Row:
    """The numbers of one or several runs; percentiles are of all their requests together."""
    seen = [each for run in runs for each in run.outcome.seen]
    wall_s = sum(run.outcome.wall_s for run in runs)
    first = 1000 * np.array([each.first for each in seen] or [np.nan])
    between = [
        1000 * (each.whole - each.first) / (each.tokens - 1) for each in seen if each.tokens > 1
    ]
    tbt = np.array(between or [np.nan])
    own = np.array([each.own_ms for each in seen if each.own_ms] or [np.nan])
    tokens = sum(each.tokens for each in seen)
    cpu_s = sum(np.nan if run.cpu_s is None else run.cpu_s for run in runs)
    return Row(
        server,
        system,
        concurrency,
        len(seen),
        percentile(first, 50),
        percentile(first, 99),
        percentile(tbt, 50),
        percentile(tbt, 99),
        len(seen) / wall_s,
        tokens / wall_s,
        percentile(own, 50),
        percentile(own, 99),
        1e6 * cpu_s / tokens if tokens else float("nan"),
        sum(run.outcome.timeouts + len(run.outcome.failures) for run in runs),
    )


def percentile(values: NDArray[Any] | Sequence[float], percent: float) -> float:
    """The percentile of times, for example."""
    return float(np.percentile(values, percent))


def print_rows(console: Console, title: str, rows: Sequence[Row]) -> None:
    """Every system at every concurrency."""
    table = table_of(
        *(title, "in flight", "system", "TTFT ms p50", "p99", "TBT ms p50", "p99", "requests/s"),
        *("tokens/s", "own ms p50", "p99", "CPU us/token", "failed"),
    )
    for row in rows:
        times = (row.ttft, row.ttft_p99, row.tbt, row.tbt_p99)
        table.add_row(
            str(row.concurrency),
            row.system,
            *(f"{value:,.1f}" for value in times),
            f"{row.requests_s:,.1f}",
            f"{row.tokens_s:,.0f}",
            *("" if np.isnan(value) else f"{value:.2f}" for value in (row.own, row.own_p99)),
            "" if np.isnan(row.cpu_us) else f"{row.cpu_us:.0f}",
            str(row.failed),
            end_section=row.system == rows[-1].system,
        )
    console.print(table)


def print_aims(console: Console, rows: Sequence[Row]) -> None:
    """The aims beside the results, at the concurrencies that they are for."""
    by_system = {(row.server, row.concurrency, row.system): row for row in rows}
    table = table_of(
        *(f"Aims, at {AIM_FROM} and above", "server", "in flight", "FastAPI's own p99 / ours"),
        *("our tokens/s / FastAPI's", "our tokens/s / gRPC's"),
        *("TTFT added ms: ours", "FastAPI", "failed"),
    )
    table.add_row("aim", "", ">= 3", ">= 2", ">= 0.9", "", "", "0")
    table.add_section()
    for (server, concurrency, system), ours in by_system.items():
        if system != OURS or concurrency < AIM_FROM:
            continue
        other = by_system.get((server, concurrency, FASTAPI))
        engine = by_system.get((server, concurrency, DIRECT))
        table.add_row(
            server,
            str(concurrency),
            f"{other.own_p99 / ours.own_p99:.1f}" if other else "",
            f"{ours.tokens_s / other.tokens_s:.2f}" if other else "",
            f"{ours.tokens_s / engine.tokens_s:.2f}" if engine else "",
            f"{ours.ttft - engine.ttft:.1f}" if engine else "",
            f"{other.ttft - engine.ttft:.1f}" if other and engine else "",
            str(ours.failed),
        )
    console.print(table)


def print_stages(
    console: Console, title: str, records: Mapping[int, Sequence[ServedRequest]]
) -> None:
    """How long our requests were in each stage, by the number in flight: p50 and p99."""
    if not records:
        return
    stages = (stage for stage, _, _ in STAGES)
    table = table_of(f"{title}: ms, p50 and p99", "in flight", "requests", *stages)
    for concurrency, requests in sorted(records.items()):
        cells = []
        for _, begin, end in STAGES:
            took = [each.seconds(begin, end) for each in requests]
            known = [1000 * value for value in took if value is not None] or [float("nan")]
            cells.append(" ".join(f"{np.percentile(known, q):.2f}" for q in (50, 99)))
        table.add_row(str(concurrency), str(len(requests)), *cells)
    console.print(table)


def print_streaming(console: Console, streamed: Sequence[Row], whole: Sequence[Row]) -> None:
    """What streaming costs each system: requests a second, whole answers and streamed ones."""
    headings = ("server", "system", "in flight", "whole requests/s", "streamed", "left")
    table = table_of("What streaming leaves of the throughput", *headings)
    for one in whole:
        for other in streamed:
            same = (one.server, one.system, one.concurrency)
            if same == (other.server, other.system, other.concurrency):
                table.add_row(
                    *(one.server, one.system, str(one.concurrency)),
                    f"{one.requests_s:,.1f}",
                    f"{other.requests_s:,.1f}",
                    f"{other.requests_s / one.requests_s:.0%}",
                )
    console.print(table)
