"""Runs in the terminal: one by itself, or several side by side and problem by problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tts.runs.compare import (
    Comparison,
    NoCurve,
    Row,
    asked_alike,
    best_of,
    joined_curves,
    label,
    varying,
)
from tts.runs.folder import has_finished
from tts.runs.log import read_events
from tts.runs.measured_run import MeasuredRun
from tts.runs.pairs import Gain, Pair, Setting
from tts.runs.statistics import half_width

from .console import consoles
from .runs import (
    RULE_NAMES,
    accuracy_cell,
    engine_use,
    limit_lines,
    missed_lines,
    remote_lines,
    warning_of,
    work_lines,
)
from .sheet import Sheet

Column = TypeVar("Column", int, str)

MOST_IDS = 20
"""How many problems are named in a line; the others are counted."""
MOST_PAIRS = 6
"""Runs that are compared with the first problem by problem; of the others there are the rows."""
_WHY_NO_CURVE: dict[NoCurve, str] = {
    "dependent": "at its own n only, since no part of its search is a smaller search",
    "limits": "at its own n only, since its limits are those of whole problems",
}
_UNITS = {"budget_tokens": "tokens", "deadline_s": "s"}
_COSTS = {
    "generated_tokens": "generated tokens",
    "verifier_tokens": "verifier tokens",
    "seconds": "seconds",
}


def print_report(found: Comparison, console: Console | None = None) -> None:
    """Print the tables of runs, and where they are kept; without a console to stdout."""
    console = console or consoles()[0]
    if found.rows:
        console.print(tables(found.rows))
    if len(found.runs) == 1 and not found.unfinished:
        (row,), folder = found.rows, found.runs[0].folder
        console.print(engine_use(row.summary, read_events(folder)))
        lines = limit_lines(row.summary) + work_lines(row.summary)
        console.print("\n".join(lines), highlight=False)
    if found.pairs:
        names = found.names
        console.print(settings_table(found.settings, names))
        first = found.runs[0]
        for place, pair in enumerate(found.pairs[:MOST_PAIRS], start=1):
            both = (first, found.runs[place])
            console.print(pair_report(pair, both, (names[0], names[place])))
        if (more := len(found.pairs) - MOST_PAIRS) > 0:
            console.print(f"{more} more runs are not compared with {names[0]} by problem.")
    _print_folders(found, console)


def _print_folders(found: Comparison, console: Console) -> None:
    """Where the runs are kept, what is left of them to do, and what to know of their numbers."""

    def warn(line: str) -> None:
        console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)

    for folder in found.folders:
        kind = "group folder" if str(folder) in found.unfinished else "run folder"
        console.print(f"{kind}: {folder}", style="dim", highlight=False, soft_wrap=True)
        if left := found.unfinished.get(str(folder)):
            warn(f"not finished: {', '.join(left)}. Continue with: tts bench --resume {folder}")
    summaries = {row.run: row.summary for row in found.rows}
    for run in found.runs:
        lines = [*remote_lines(run.config), *missed_lines(run.folder)]
        if line := warning_of(summaries[str(run.folder)]):
            lines.append(line)
        if not has_finished(run.folder):
            lines.append(f"not finished. Continue with: tts bench --resume {run.folder}")
        for line in lines:
            warn(line if len(found.runs) == 1 else f"{run.folder.name}: {line}")


def tables(rows: Sequence[Row]) -> RenderableType:
    """All tables of at least one row."""
    also = varying(rows)
    names = [label(row, also) for row in rows]
    by_run: dict[str, list[Row]] = {}
    for row in rows:
        by_run.setdefault(row.run, []).append(row)
    runs = list(by_run.values())  # strategies that share a run share its pass@n and votes
    return Group(
        _header(rows),
        Text(),
        _numbers(rows, names),
        *(Text(line, style="dim") for line in (*_shared(runs), *_tree_lines(rows))),
        *_levels(rows, names),
        *_rules(runs, also),
        *_curves(rows, names),
        Text(),
    )


def _header(rows: Sequence[Row]) -> Text:
    def all_of(values: Iterable[object]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values))

    return Text(
        f"deployment {all_of(row.summary.deployment for row in rows)}, "
        f"dataset {all_of(Path(row.summary.dataset).name for row in rows)}: "
        f"{all_of(row.summary.problems for row in rows)} problems, "
        f"schedule {all_of(row.summary.schedule for row in rows)}, "
        f"seed {all_of(row.summary.seed for row in rows)}",
        style="bold",
    )


def _numbers(rows: Sequence[Row], names: Sequence[str]) -> RenderableType:
    """What each row is worth and what it took; columns that say nothing here are left out."""
    budgets = [budget_in_words(row.budget) for row in rows]
    speed_ups = [_speed_up(row, rows) for row in rows]
    columns: dict[str, list[str]] = {
        "n": [str(row.n) for row in rows],
        "budget": budgets,
        "accuracy (95%)": [accuracy_cell(row.accuracy, row.problems) for row in rows],
        "against\nthe best (95%)": _against_the_best(rows),
        "tokens": [f"{row.tokens_per_problem:,.0f}" for row in rows],
        "verifier\ncalls": [f"{row.verifier_calls_per_problem:,.1f}" for row in rows],
        "seconds": [_number(row.seconds_per_problem, 2) for row in rows],
        "wall s\nof the run": [f"{row.wall_s:,.1f}" for row in rows],
        "speed-up": speed_ups,
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    table = _table("strategy", *shown)
    for name, *cells in zip(names, *shown.values(), strict=True):
        table.add_row(Text(name), *cells)
    note = (
        "Tokens (without speculation in vain), verifier calls and seconds (from start to answer) "
        "are means of a problem."
    )
    return Group(Sheet(table), Text(note, style="dim"))


def _against_the_best(rows: Sequence[Row]) -> list[str]:
    """The gain of each row over the best at its budget, on the same problems."""
    judged = [row for row in rows if row.right]
    if len(judged) < 2 or len(asked_alike(rows)) > 1:
        return [""] * len(rows)
    best = {
        budget: best_of(row for row in judged if tuple(row.budget) == budget)
        for budget in {tuple(row.budget) for row in judged}
    }
    return [_gain_cell(row, best.get(tuple(row.budget))) for row in rows]


def _gain_cell(row: Row, best: Row | None) -> str:
    if row is best:
        return "best"
    gain = row.gain_over(best) if best else None
    return "-" if gain is None else _points(gain)


def _points(gain: Gain, unit: str = "") -> str:
    return f"{100 * gain.mean:+.1f}{unit} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"


def budget_in_words(budget: Mapping[str, float]) -> str:
    """Such as `1,000 tokens`; empty without a budget."""
    return ", ".join(f"{value:,g} {_UNITS[name]}" for name, value in sorted(budget.items()))


def _speed_up(row: Row, rows: Sequence[Row]) -> str:
    """Against the lockstep run of the same search."""
    if row.summary.schedule == "lockstep" or not row.wall_s:
        return ""
    for other in rows:
        if other.summary.schedule == "lockstep" and other.summary.search == row.summary.search:
            return f"{other.wall_s / row.wall_s:.2f}x"
    return ""


def _shared(runs: Sequence[Sequence[Row]]) -> list[str]:
    lines = [
        f"{' and '.join(row.strategy for row in sharing)} are one run under {len(sharing)} votes."
        for sharing in runs
        if len(sharing) > 1
    ]
    return list(dict.fromkeys(lines))


def _tree_lines(rows: Sequence[Row]) -> list[str]:
    """Whether runs of one search under several schedules have the same trees, as they should."""
    by_search: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        by_search.setdefault(row.summary.search, {}).setdefault(row.run, row)
    lines = []
    for runs in map(list, map(dict.values, by_search.values())):
        if len(runs) > 1:
            same = len({row.summary.tree_digest for row in runs}) == 1
            schedules = " and ".join(row.summary.schedule for row in runs)
            lines.append(
                f"trees identical ({runs[0].strategy}: {schedules}): {'yes' if same else 'NO'}"
            )
    return lines


def _levels(rows: Sequence[Row], names: Sequence[str]) -> list[RenderableType]:
    found = {level for row in rows for level in row.accuracy_by_level}
    if not found:
        return []
    headings = {}
    for level in sorted(found, key=lambda level: (len(level), level)):
        counts = {
            row.accuracy_by_level[level]["problems"]
            for row in rows
            if level in row.accuracy_by_level
        }
        headings[level] = f"{level}\n({counts.pop()})" if len(counts) == 1 else level
    cells = [
        {level: entry["accuracy"] for level, entry in row.accuracy_by_level.items()} for row in rows
    ]
    names = [f"{name}, n={row.n}" for name, row in zip(names, rows, strict=True)]
    return [_title("accuracy by level (problems)"), _percentages(headings, names, cells)]


def _rules(runs: Sequence[Sequence[Row]], also: Sequence[str]) -> list[RenderableType]:
    table = _table("strategy", "n", *RULE_NAMES.values(), "any of n\n(pass@n)")
    if all(sharing[0].accuracy is None for sharing in runs):
        return []
    for sharing in runs:
        row, own = sharing[0], {each.vote for each in sharing}
        by_rule = {str(rule): share for rule, share in row.summary.accuracy_by_rule.items()}
        cells = [
            accuracy_cell(by_rule.get(rule), row.problems) + (" *" if rule in own else "  ")
            for rule in RULE_NAMES
        ]
        name = ", ".join(label(each, also) for each in sharing)
        table.add_row(Text(name), str(row.n), *cells, accuracy_cell(row.pass_at_n, row.problems))
    undecided = sum(sharing[0].summary.undecided for sharing in runs)
    notes = ["* the strategy's own rule"]
    if undecided:
        notes.append(f"{undecided} comparisons undecided, counted as wrong")
    return [
        _title("accuracy by rule (95%)"),
        Sheet(table),
        *(Text(line, style="dim") for line in notes),
    ]


def _curves(rows: Sequence[Row], names: Sequence[str]) -> list[RenderableType]:
    curves = joined_curves(names, rows)
    sizes = sorted({size for points in curves.values() for size in points})
    if all(len(points) < 2 for points in curves.values()):
        return []
    shares = [{n: p.accuracy for n, p in points.items()} for points in curves.values()]
    return [
        _title("accuracy over n"),
        _percentages({size: str(size) for size in sizes}, list(curves), shares),
        *(Text(line, style="dim") for line in _curve_notes(rows)),
    ]


def _curve_notes(rows: Sequence[Row]) -> list[str]:
    widest = max(half_width(p.accuracy, row.problems) for row in rows for p in row.curve)
    notes = [
        f"95% intervals: at most ±{100 * widest:.1f} points (Wilson, by problems). Below a run's "
        "own n: averages over its disjoint blocks of chains or whole subtrees."
    ]
    for reason, why in _WHY_NO_CURVE.items():
        having = [row.strategy for row in rows if row.no_curve == reason and row.n > 1]
        if having:
            notes.append(f"{', '.join(dict.fromkeys(having))}: {why}.")
    return notes


def _percentages(
    headings: Mapping[Column, str],
    names: Sequence[str],
    shares: Sequence[Mapping[Column, float | None]],
) -> Sheet:
    """A row of percentages for each name."""
    table = _table("strategy", *headings.values())
    for name, row in zip(names, shares, strict=True):
        cells = [_percent(row[column]) if column in row else "" for column in headings]
        table.add_row(Text(name), *cells)
    return Sheet(table)


def settings_table(settings: Sequence[Setting], names: Sequence[str]) -> RenderableType:
    """The differences between the runs' configurations, a row each."""
    if not settings:
        return Text("The runs were asked for the same.")
    table = _table("what differs", *names)
    for setting in settings:
        table.add_row(setting.name, *map(setting_cell, setting.values))
    return Sheet(table)


def setting_cell(value: Any) -> str:
    """A setting as run.json has it; a dash where a run has none. Long ones are cut."""
    text = "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def pair_report(
    pair: Pair, runs: tuple[MeasuredRun, MeasuredRun], names: tuple[str, str]
) -> RenderableType:
    """A run against the first: accuracy, costs, trees, the problems on which they disagree."""
    baseline, other = names
    table = _table("mean per problem", baseline, other, "difference (95%)")
    if pair.gain is not None and pair.gain_95 is not None:
        table.add_row(
            "accuracy",
            *(_percent(right / pair.judged) for right in pair.right),
            _points(Gain(pair.gain, *pair.gain_95), " points"),
        )
    for cost in pair.costs:
        low, high = cost.difference_95
        digits = 2 if cost.name == "seconds" else 0
        table.add_row(
            _COSTS[cost.name],
            f"{cost.baseline:,.{digits}f}",
            f"{cost.other:,.{digits}f}",
            f"{cost.difference:+,.{digits}f} ({low:+,.{digits}f} to {high:+,.{digits}f})",
        )
    walls = [run.measures.wall_s for run in runs]
    ratio = f"{walls[1] / walls[0]:.2f} times" if walls[0] else ""
    table.add_row("wall s of the run", *(f"{wall:,.1f}" for wall in walls), ratio)
    solved = [len(run.measures.problems) for run in runs]
    return Group(
        _title(f"{other} against {baseline}, on {_common(len(pair.common), solved)}"),
        Sheet(table),
        *map(Text, (*_disagreements(pair, names), *_parting(pair, names))),
    )


def _common(count: int, solved: Sequence[int]) -> str:
    words = "the problem" if count == 1 else f"the {count:,} problems"
    if max(solved) == count:
        return f"{words} of both"
    return f"{words} that both have solved (of {solved[0]:,} and {solved[1]:,})"


def _parting(pair: Pair, names: Sequence[str]) -> list[str]:
    """Whether runs that were asked for the same have the same trees, and where they part."""
    if pair.trees is None:
        return []
    if not pair.trees.differ:
        return ["The trees are the same."]
    differ, first = pair.trees.differ, pair.trees.first
    lines = [f"trees that differ, {len(differ):,} of {len(pair.common):,}: {_listed(differ)}"]
    if first is None:
        return [*lines, "No step of the first of them differs, so a score does: by rounding."]
    where = f"problem {first.problem}, step {'.'.join(map(str, first.node))}, token {first.token}"
    said = [
        f"{'the end' if token is None else token} in {name}"
        for token, name in zip(first.ids, names, strict=True)
    ]
    return [*lines, f"The first parts by rounding at {where}: {', '.join(said)}."]


def _disagreements(pair: Pair, names: Sequence[str]) -> list[str]:
    if not pair.judged:
        return ["The problems have no reference answers, so there are no accuracies."]
    lines = [
        f"McNemar's exact test: p = {pair.p_value:.3g}; right in both: "
        f"{pair.right[0] - len(pair.only_baseline):,}, in neither: "
        f"{pair.judged - pair.right[0] - len(pair.only_other):,}"
    ]
    for name, ids in zip(names, (pair.only_baseline, pair.only_other), strict=True):
        lines.append(f"right in {name} only, {len(ids):,}{': ' if ids else ''}{_listed(ids)}")
    return lines


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MOST_IDS:,} more" if len(ids) > MOST_IDS else ""
    return f"{', '.join(ids[:MOST_IDS])}{more}"


def _table(first: str, *headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold", no_wrap=True)
    return table


def _title(text: str) -> Text:
    return Text(f"\n{text}\n", style="bold")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
