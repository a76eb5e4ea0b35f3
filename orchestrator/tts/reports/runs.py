"""Tables of finished runs, for the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tts.runs.compare import Agreement, correct_by_problem
from tts.runs.config import NOT_REPRODUCIBLE, read_run_config
from tts.runs.engine_steps import prefixes_missed
from tts.runs.events import AnyEvent
from tts.runs.groups import is_group
from tts.runs.log import read_events
from tts.runs.records import ENGINES
from tts.runs.requests import occupancy, requests_of
from tts.runs.statistics import half_width
from tts.runs.summary import Summary

from .console import consoles
from .sheet import Sheet, sparkline

RULE_NAMES = {"best": "best score", "weighted": "weighted vote", "majority": "majority vote"}
"""How people call the votes."""


def comparison(summaries: Sequence[Summary]) -> RenderableType:
    """Runs side by side, a row each; speed-up is against the lockstep run of the same search."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("strategy", no_wrap=True)
    table.add_column("schedule", no_wrap=True)
    for heading in (
        "n",
        "accuracy (95%)",
        "wall s",
        "problems\nper s",
        "tokens\nper s",
        "verifier\ncalls",
        "in flight\ngen / ver",
        "speed-up",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for summary in summaries:
        in_flight = summary.mean_in_flight
        table.add_row(
            _named(summary) if len(summaries) > 1 else summary.strategy,
            summary.schedule,
            str(summary.n),
            accuracy_cell(summary.accuracy, _judged(summary)),
            _number(summary.wall_s, 1),
            _number(summary.problems_per_s, 2),
            _number(summary.tokens_per_s, 0),
            _number(summary.verifier_calls, 0),
            f"{_number(in_flight.generator, 1)} / {_number(in_flight.verifier, 1)}",
            _speed_up(summary, summaries),
        )
    lines = [Text(line) for line in _tree_lines(summaries)]
    return Group(Sheet(table, keys=2), *lines)


def details(summary: Summary) -> RenderableType:
    """One run: accuracy by rule and by level."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("accuracy by")
    table.add_column("", justify="right")

    for rule, share in summary.accuracy_by_rule.items():
        chosen = " (the answer)" if rule == summary.vote else ""
        table.add_row(RULE_NAMES[rule] + chosen, accuracy_cell(share, _judged(summary)))
    table.add_row("any of n (pass@n)", accuracy_cell(summary.pass_at_n, _judged(summary)))
    for level, entry in summary.accuracy_by_level.items():
        table.add_row(f"level {level}", accuracy_cell(entry.accuracy, entry.problems))
    if summary.undecided:
        table.caption = f"{summary.undecided} comparisons undecided, counted as wrong"
    return table


def engine_use(summary: Summary, events: Iterable[AnyEvent], slices: int = 32) -> RenderableType:
    """One run: what was in flight on each engine over time, and when nothing was and why."""
    wall, idle = summary.wall_s, summary.idle_s
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
    """One run: the time of a problem, and what speculation and waste came to."""
    latency, ahead, waste = summary.latency_s, summary.speculation, summary.waste
    lines = []
    if summary.mean_completions is not None:
        of = "" if summary.n is None else f" of n={summary.n:,}"  # a function's searches have no n
        lines.append(f"completions per problem: {summary.mean_completions:,.1f}{of}")
    for name, did in (summary.servers or {}).items():
        lines.append(
            f"server {name}: {did.generator_requests:,} thoughts, "
            f"{did.generated_tokens:,} tokens, {did.verifier_requests:,} scores"
        )
    if latency.median is not None:
        lines.append(
            f"time of one problem: median {latency.median:,.2f} s, p95 {latency.p95:,.2f} s"
        )
    if ahead.hit_rate is not None:
        lines.append(
            f"speculative expansions: {ahead.sent:,} sent, {ahead.used:,} used "
            f"({100 * ahead.hit_rate:.1f}%)" + _cancelled(ahead.cancelled)
        )
    if waste.share:
        lines.append(
            f"wasted generation: {100 * waste.share:.1f}% of all tokens: "
            f"{waste.unused_tokens:,} never used"
            + (f", {waste.lost_tokens:,} beyond the budget" if waste.lost_tokens else "")
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


def paired_table(
    entries: Sequence[tuple[str, float | None, Mapping[str, bool | None]]],
) -> Table | None:
    """Each entry against the next one down in accuracy, on the problems that both solved.

    An entry is a name, an accuracy, and of each problem whether its answer is right. None if
    there is nothing to compare.
    """
    ranked = sorted(entries, key=lambda entry: entry[1] or 0.0, reverse=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("better", "than"):
        table.add_column(heading, overflow="fold")
    table.add_column("by (paired, standard error)", justify="right", no_wrap=True)
    for (better, _, ours), (worse, _, theirs) in itertools.pairwise(ranked):
        if found := Agreement.of(theirs, ours).difference:
            points = f"{100 * found.mean:+.1f} points ±{100 * found.error:.1f}"
            points += f" on {found.count:,} problems"
            table.add_row(Text(better), Text(worse), points)
    return table if table.row_count else None


def print_report(
    folders: Sequence[Path], summaries: Sequence[Summary], console: Console | None = None
) -> None:
    """Print runs side by side, or one run with its details, and where they are kept.

    Without a console to stdout.
    """
    console = console or consoles()[0]
    console.print(comparison(summaries))
    if len(summaries) == 1:
        console.print(details(summaries[0]))
        console.print(engine_use(summaries[0], read_events(folders[0])))
        lines = limit_lines(summaries[0]) + work_lines(summaries[0])
        console.print("\n".join(lines), highlight=False)
    else:
        distinct = {s.search: (f, s) for f, s in zip(folders, summaries, strict=True)}
        entries = [
            (_named(summary), summary.accuracy, correct_by_problem(folder, summary.vote))
            for folder, summary in distinct.values()
        ]
        alike = len({summary.asked for summary in summaries}) == 1
        if alike and (table := paired_table(entries)):
            console.print(table)
    for folder, summary in zip(folders, summaries, strict=True):
        console.print(f"run folder: {folder}", style="dim", highlight=False, soft_wrap=True)
        if line := warning_of(summary):
            console.print(line, style="yellow", highlight=False, soft_wrap=True)
        for line in [*remote_lines(folder), *_missed_lines(folder)]:
            console.print(line, style="yellow", highlight=False, soft_wrap=True)


def _named(summary: Summary) -> str:
    """A run's strategy, and the limits of its problems."""
    limits = summary.limits or {}
    named = [summary.strategy]
    if tokens := limits.get("budget_tokens"):
        named.append(f"{tokens:,} tokens")
    if "deadline_s" in limits:
        named.append(f"{limits['deadline_s']:g} s")
    return ", ".join(named)


def _judged(summary: Summary) -> int:
    """How many problems accuracies are about."""
    return summary.problems if summary.judged is None else summary.judged


def accuracy_cell(share: float | None, problems: int) -> str:
    """`82.5% ±5.4`: the Wilson 95% interval's half width, which is sane at 0 and 1 too."""
    if share is None or not problems:
        return "-"
    return f"{100 * share:.1f}% ±{100 * half_width(share, problems):.1f}"


def _missed_lines(folder: Path) -> list[str]:
    """A warning of a pool that dropped prefixes which the run came back to."""
    missed = prefixes_missed(folder, "generator")
    if not missed:
        return []
    return [
        f"generator: its KV pool had dropped a prefix of {missed:,} prompts, which was computed "
        "again; in rare cases another schedule then grows another tree. Raise kv_cache.tokens."
    ]


def remote_lines(folder: Path) -> list[str]:
    """Lines that say which engines of a run ran already; none of a group."""
    if is_group(folder):
        return []
    remotes = read_run_config(folder).remotes
    lines = [
        f"{role} at {', '.join(each.url)}" + (f": {each.servers[0]}" if each.servers else "")
        for role, each in remotes.items()
    ]
    if any(each.reproducible is False for each in remotes.values()):
        lines.append(NOT_REPRODUCIBLE)
    return lines


def _speed_up(summary: Summary, summaries: Sequence[Summary]) -> str:
    for other in summaries:
        if (
            summary.wall_s
            and summary.schedule != "lockstep"
            and other.schedule == "lockstep"
            and other.search == summary.search
        ):
            return f"{other.wall_s / summary.wall_s:.2f}x"
    return ""


def _tree_lines(summaries: Sequence[Summary]) -> list[str]:
    by_search: dict[tuple[Hashable, ...], list[Summary]] = {}
    for summary in summaries:
        by_search.setdefault(summary.search, []).append(summary)
    lines = []
    for equal in by_search.values():
        if len(equal) > 1:
            same = len({summary.tree_digest for summary in equal}) == 1
            schedules = " and ".join(summary.schedule for summary in equal)
            lines.append(
                f"trees identical ({equal[0].strategy}: {schedules}): " + ("yes" if same else "NO")
            )
    return lines


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
