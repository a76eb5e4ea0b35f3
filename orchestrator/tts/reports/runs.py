"""What a run did, for the terminal: its engines, its work, its limits, what to know of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rich import box
from rich.console import RenderableType
from rich.table import Table

from tts.runs.config import NOT_REPRODUCIBLE, RunConfig
from tts.runs.engine_steps import prefixes_missed
from tts.runs.events import AnyEvent
from tts.runs.records import ENGINES
from tts.runs.requests import occupancy, requests_of
from tts.runs.statistics import half_width
from tts.runs.summary import Summary

from .sheet import Sheet, sparkline

RULE_NAMES = {"best": "best score", "weighted": "weighted vote", "majority": "majority vote"}
"""How people call the votes."""


def engine_use(summary: Summary, events: Iterable[AnyEvent], slices: int = 32) -> RenderableType:
    """One run: what was in flight on each engine over time, and when nothing was and why.

    The idle times need a log of a version that kept them; else their columns are left out.
    """
    wall = summary.wall_s
    idle = summary.idle_s or {engine: {} for engine in ENGINES}
    reasons = sorted({why for by_why in idle.values() for why in by_why})
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("in flight", no_wrap=True)
    table.add_column("mean", justify="right", no_wrap=True)
    table.add_column("over the run", no_wrap=True)
    for why in reasons:
        table.add_column(f"idle:\n{why}", justify="right", no_wrap=True)
    loads = occupancy(requests_of(events), wall, slices)
    for engine, unit in zip(ENGINES, ("requests", "prompt tokens"), strict=True):
        load = loads[engine]
        table.add_row(
            f"{engine}, {unit}",
            _number(sum(load) / slices if load else None, 1),
            sparkline(load),
            *(f"{100 * idle[engine].get(why, 0.0) / wall:.1f}%" for why in reasons if wall),
        )
    return Sheet(table)


def work_lines(summary: Summary) -> list[str]:
    """One run: throughput, the time of a problem, and what speculation and waste came to."""
    latency, ahead, waste = summary.latency_s, summary.speculation, summary.waste
    lines = [
        f"{_number(summary.problems_per_s, 2)} problems and {_number(summary.tokens_per_s, 0)} "
        "generated tokens per second"
    ]
    if summary.mean_completions is not None:
        of = "" if summary.n is None else f" of n={summary.n:,}"  # a function's searches have no n
        lines.append(f"completions per problem: {summary.mean_completions:,.1f}{of}")
    for name, did in (summary.servers or {}).items():
        lines.append(
            f"server {name}: {did.generator_requests:,} thoughts, "
            f"{did.generated_tokens:,} tokens, {did.verifier_requests:,} scores"
        )
    if latency and latency.median is not None:
        lines.append(
            f"time of one problem: median {latency.median:,.2f} s, p95 {latency.p95:,.2f} s"
        )
    if ahead and ahead.hit_rate is not None:
        lines.append(
            f"speculative expansions: {ahead.sent:,} sent, {ahead.used:,} used "
            f"({100 * ahead.hit_rate:.1f}%)" + _cancelled(ahead.cancelled)
        )
    if waste and waste.share:
        lines.append(
            f"wasted generation: {100 * waste.share:.1f}% of all tokens: "
            f"{waste.unused_tokens:,} never used, "
            + (f"{waste.lost_tokens:,} beyond the budget, " if waste.lost_tokens else "")
            + f"and about {waste.cancelled_tokens_estimated:,} (estimated) in cancelled requests"
        )
    return lines


def limit_lines(summary: Summary) -> list[str]:
    """One run: the budget that n was fitted to, how many problems came to a limit, and which."""
    limits, limited = summary.limits or {}, summary.limited or {}
    lines = []
    if tokens := (summary.fitted_to or {}).get("budget_tokens"):
        lines.append(
            f"budget of {tokens:,} generated tokens a problem on average: n={summary.n} is fitted "
            f"to it, and took {summary.generated_tokens / max(1, summary.problems):,.0f}"
        )
    if tokens := limits.get("budget_tokens"):
        cut = f"{limited.get('tokens', 0):,} of {summary.problems:,} problems"
        budget = f"budget of {tokens:,} generated tokens a problem"
        if summary.strategy == "auto":
            lines.append(f"{budget} on average; {cut} were cut short")
        else:
            lines.append(f"{budget}: spent by {cut}")
    if "deadline_s" in limits:
        lines.append(
            f"deadline of {limits['deadline_s']:g} s a problem: passed by "
            f"{limited.get('deadline', 0):,} of {summary.problems:,} problems, whose answers "
            "depend on the time that everything took"
        )
    return lines


def warning_of(summary: Summary) -> str | None:
    """What a limit has done to a run's answers; None if it left no search without one."""
    if not summary.unanswered:
        return None
    cut = sum((summary.limited or {}).values())
    return (
        f"warning: a limit cut off {cut:,} of {summary.problems:,} searches, "
        f"{summary.unanswered:,} of them without any answer. Give a larger limit or a smaller --n; "
        "without --n, --budget-tokens chooses it."
    )


def _cancelled(by_why: Mapping[str, int]) -> str:
    reasons = ", ".join(f"{count:,} {why}" for why, count in by_why.items())
    return f"; cancelled: {reasons}" if reasons else ""


def accuracy_cell(share: float | None, problems: int) -> str:
    """`82.5% ±5.4`: the Wilson 95% interval's half width, which is sane at 0 and 1 too."""
    if share is None or not problems:
        return "-"
    return f"{100 * share:.1f}% ±{100 * half_width(share, problems):.1f}"


def missed_lines(folder: Path) -> list[str]:
    """A warning of a pool that dropped prefixes which the run came back to."""
    missed = prefixes_missed(folder, "generator")
    if not missed:
        return []
    return [
        f"generator: its KV pool had dropped a prefix of {missed:,} prompts, which was computed "
        "again; in rare cases another schedule then grows another tree. Raise kv_cache.tokens."
    ]


def remote_lines(config: RunConfig) -> list[str]:
    """Lines that say which engines of a run ran already."""
    lines = [
        f"{role} at {', '.join(each.url)}" + (f": {each.servers[0]}" if each.servers else "")
        for role, each in config.remotes.items()
    ]
    if any(each.reproducible is False for each in config.remotes.values()):
        lines.append(NOT_REPRODUCIBLE)
    return lines


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
