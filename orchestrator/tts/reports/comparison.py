"""Runs compared, for the terminal: strategies side by side, and runs problem by problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tts.runs.compare import (
    NoCurve,
    PairedRun,
    Row,
    Setting,
    asked_alike,
    in_order,
    joined_curves,
    label,
    read_rows,
    varying,
)
from tts.runs.groups import is_group
from tts.runs.pooled import Budget, Pooled, best_at, pool
from tts.runs.statistics import half_width
from tts.runs.summary import read_summary

from .console import consoles
from .runs import RULE_NAMES, accuracy_cell, paired_table, remote_lines, warning_of
from .sheet import Sheet

Column = TypeVar("Column", int, str)


_WHY_NO_CURVE: dict[NoCurve, str] = {
    "dependent": "at its own n only, since no part of its search is a smaller search",
    "limits": "at its own n only, since its limits are those of whole problems",
}


def report_comparison(folders: Sequence[Path]) -> None:
    """Print the tables of groups, and of single runs beside them; keep each group's numbers."""
    out, _ = consoles()
    read = [read_rows(folder) for folder in folders]
    if rows := in_order([row for found, _ in read for row in found]):
        out.print(comparison_tables(rows))
    for run in dict.fromkeys(Path(row.run) for row in rows):
        if line := warning_of(read_summary(run)):
            out.print(f"{run.name}: {line}", style="yellow", highlight=False, soft_wrap=True)
    for folder, (_, unfinished) in zip(folders, read, strict=True):
        kind = "group folder" if is_group(folder) else "run folder"
        out.print(f"{kind}: {folder}", style="dim", highlight=False, soft_wrap=True)
        for line in remote_lines(folder):
            out.print(line, style="yellow", highlight=False, soft_wrap=True)
        if unfinished:
            left = ", ".join(unfinished)
            way_on = f"not finished: {left}. Continue with: tts bench --resume {folder}"
            out.print(way_on, style="yellow", markup=False, soft_wrap=True)


def comparison_tables(rows: Sequence[Row]) -> RenderableType:
    """All tables of a comparison; at least one row."""
    also = varying(rows)
    names = [label(row, also) for row in rows]
    by_run: dict[str, list[Row]] = {}
    for row in rows:
        by_run.setdefault(row.run, []).append(row)
    runs = list(by_run.values())  # strategies that share a run share its pass@n and votes
    run_names = [_together(sharing, also) for sharing in runs]
    parts = [
        _header(rows),
        Text(),
        _costs(rows, names),
        *(Text(line, style="dim") for line in _shared(runs)),
        *_per_problem(rows),
        *_levels(rows, names),
        _rules(runs, run_names),
        *_curves(rows, names, runs, run_names),
    ]
    if len(asked_alike(rows)) == 1:
        entries = [
            (name, row.accuracy, row.right)
            for name, row in zip(_distinct(names, rows), rows, strict=True)
        ]
        if table := paired_table(entries):
            parts += [_title("differences, problem by problem"), table]
    return Group(*parts, Text())


def _header(rows: Sequence[Row]) -> Text:
    def all_of(values: Iterable[object]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values))

    return Text(
        f"deployment {all_of(row.deployment for row in rows)}, "
        f"dataset {all_of(Path(row.dataset).name for row in rows)}: "
        f"{all_of(row.problems for row in rows)} problems, "
        f"schedule {all_of(row.schedule for row in rows)}, "
        f"seed {all_of(row.seed for row in rows)}",
        style="bold",
    )


def _costs(rows: Sequence[Row], names: Sequence[str]) -> Sheet:
    table = _table(
        "n", "accuracy (95%)", "pass@n", "samples", "tokens", "verifier\ncalls", "wall s"
    )
    for row, name in zip(rows, names, strict=True):
        table.add_row(
            Text(name),
            str(row.n),
            accuracy_cell(row.accuracy, row.problems),
            _percent(row.pass_at_n),
            f"{row.samples:,}",
            f"{row.generated_tokens:,}",
            f"{row.verifier_calls:,}",
            f"{row.wall_s:,.1f}",
        )
    return Sheet(table)


def _per_problem(rows: Sequence[Row]) -> list[RenderableType]:
    """What a problem took, and accuracy against the best at the same budget; seeds together."""
    pooled = pool(rows)
    if len(pooled) < 2:
        return []
    best = best_at(pooled)
    comparable = len(asked_alike(rows)) == 1
    table = _table("n", "budget", "tokens", "seconds", "accuracy", "against the best (95%)")
    for each in pooled:
        table.add_row(
            Text(each.name),
            each.n,
            budget_in_words(each.budget) or "-",
            f"{each.tokens:,.0f}",
            "-" if each.seconds is None else f"{each.seconds:,.2f}",
            _percent(each.accuracy),
            _gain(each, best[each.budget]) if comparable else "-",
        )
    seeds = len({row.seed for row in rows})
    notes = [
        "Means of a problem: tokens that its search asked for, seconds from its start to its "
        "answer. Differences are paired, in points" + (f"; {seeds} seeds." if seeds > 1 else ".")
    ]
    return [
        _title("per problem"),
        Sheet(table),
        *(Text(line, style="dim") for line in notes),
    ]


def budget_in_words(budget: Budget) -> str:
    """Such as `1,000 tokens`; empty without a budget."""
    units = {"budget_tokens": "tokens", "deadline_s": "s"}
    return ", ".join(f"{value:,g} {units[name]}" for name, value in budget)


def _gain(one: Pooled, best: Pooled) -> str:
    if one is best:
        return "best"
    gain = one.gain_over(best)
    if gain is None:
        return "-"
    return f"{100 * gain.mean:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"


def _shared(runs: Sequence[Sequence[Row]]) -> list[str]:
    lines = [
        f"{' and '.join(row.strategy for row in sharing)} are one run under {len(sharing)} votes."
        for sharing in runs
        if len(sharing) > 1
    ]
    return list(dict.fromkeys(lines))


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
    return [
        _title("accuracy by level (problems)"),
        _percentages(headings, _distinct(names, rows), cells),
    ]


def _rules(runs: Sequence[Sequence[Row]], names: Sequence[str]) -> RenderableType:
    table = _table("n", *RULE_NAMES.values())
    for name, sharing in zip(names, runs, strict=True):
        row = sharing[0]
        own = {each.vote for each in sharing}
        cells = [
            accuracy_cell(row.accuracy_by_rule.get(rule), row.problems)
            + (" *" if rule in own else "  ")
            for rule in RULE_NAMES
        ]
        table.add_row(Text(name), str(row.n), *cells)
    return Group(
        _title("accuracy by rule (95%)"),
        Sheet(table),
        Text("* the strategy's own rule", style="dim"),
    )


def _curves(
    rows: Sequence[Row],
    names: Sequence[str],
    runs: Sequence[Sequence[Row]],
    run_names: Sequence[str],
) -> list[RenderableType]:
    accuracy = joined_curves(names, rows)
    sizes = sorted({size for points in accuracy.values() for size in points})
    if not sizes:
        return []
    headings = {size: str(size) for size in sizes}
    passes = joined_curves(run_names, [sharing[0] for sharing in runs])
    return [
        _title("accuracy over n"),
        _percentages(
            headings,
            list(accuracy),
            [{n: p.accuracy for n, p in points.items()} for points in accuracy.values()],
        ),
        _title("pass@n over n: any of n completions is right"),
        _percentages(
            headings,
            list(passes),
            [{n: p.pass_at_n for n, p in points.items()} for points in passes.values()],
        ),
        Text(),
        *(Text(line, style="dim") for line in _curve_notes(rows)),
    ]


def _curve_notes(rows: Sequence[Row]) -> list[str]:
    widest = max(half_width(p.accuracy, row.problems) for row in rows for p in row.curve)
    notes = [f"95% intervals: at most ±{100 * widest:.1f} points (Wilson, by problems)."]
    if any(len(row.curve) > 1 for row in rows):
        notes.append(
            "Below a run's own n: averages over its disjoint blocks of chains or whole subtrees."
        )
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
    table = _table(*headings.values())
    for name, row in zip(names, shares, strict=True):
        cells = [_percent(row[column]) if column in row else "" for column in headings]
        table.add_row(Text(name), *cells)
    return Sheet(table)


def _distinct(names: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """The names, with n where several rows bear one."""
    count = Counter(names)
    return [
        name if count[name] == 1 else f"{name}, n={row.n}"
        for name, row in zip(names, rows, strict=True)
    ]


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("strategy", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _title(text: str) -> Text:
    return Text(f"\n{text}\n", style="bold")


def _together(sharing: Sequence[Row], also: Sequence[str]) -> str:
    """The name of strategies that share a run, and thus what is special about them."""
    strategies = ", ".join(row.strategy for row in sharing)
    return label(replace(sharing[0], strategy=strategies), also)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


MOST_IDS = 20
"""How many problems are named in a line; the others are counted."""


def settings_table(settings: Sequence[Setting], names: Sequence[str]) -> RenderableType:
    """The differences between the runs' configurations, a row each."""
    if not settings:
        return Text("The runs were asked for the same.")
    table = _runs_table("what differs", *names)
    for setting in settings:
        table.add_row(setting.name, *map(setting_cell, setting.values))
    return Sheet(table)


def setting_cell(value: Any) -> str:
    """A setting as run.json has it; a dash where a run has none. Long ones are cut."""
    text = "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def paired_report(pair: PairedRun, baseline: str, other: str) -> RenderableType:
    """A run against the baseline: accuracy, costs, and the problems on which they disagree."""
    table = _runs_table("mean per problem", baseline, other, "difference (95%)")
    if pair.gain is not None and pair.gain_95 is not None:
        low, high = pair.gain_95
        table.add_row(
            "accuracy",
            *(f"{100 * right / pair.judged:.1f}%" for right in pair.right),
            f"{100 * pair.gain:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})",
        )
    for cost in pair.costs:
        low, high = cost.difference.interval_95
        digits = 2 if cost.name == "seconds" else 0
        table.add_row(
            cost.name,
            f"{cost.baseline:,.{digits}f}",
            f"{cost.other:,.{digits}f}",
            f"{cost.difference.mean:+,.{digits}f} ({low:+,.{digits}f} to {high:+,.{digits}f})",
        )
    walls = (pair.baseline.measures.wall_s, pair.other.measures.wall_s)
    table.add_row("wall s of the run", *(f"{wall:,.1f}" for wall in walls), _ratio(*walls))
    lines = [f"\n{other} against {baseline}, on {_problems(pair)}\n"]
    return Group(
        *(Text(line, style="bold") for line in lines),
        Sheet(table),
        *(Text(line) for line in _disagreements(pair, baseline, other)),
        *(Text(line) for line in _tree_lines(pair, baseline, other)),
    )


def _tree_lines(pair: PairedRun, baseline: str, other: str) -> list[str]:
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
        for token, name in zip(first.ids, (baseline, other), strict=True)
    ]
    return [*lines, f"The first parts by rounding at {where}: {', '.join(said)}."]


def _disagreements(pair: PairedRun, baseline: str, other: str) -> list[str]:
    if not pair.judged:
        return ["The problems have no reference answers, so there are no accuracies."]
    lines = [
        f"McNemar's exact test: p = {pair.p_value:.3g}; right in both: "
        f"{pair.right[0] - len(pair.only_baseline):,}, in neither: "
        f"{pair.judged - pair.right[0] - len(pair.only_other):,}"
    ]
    for name, ids in ((baseline, pair.only_baseline), (other, pair.only_other)):
        lines.append(f"right in {name} only, {len(ids):,}{': ' if ids else ''}{_listed(ids)}")
    return lines


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MOST_IDS:,} more" if len(ids) > MOST_IDS else ""
    return f"{', '.join(ids[:MOST_IDS])}{more}"


def _problems(pair: PairedRun) -> str:
    solved = [len(run.measures.problems) for run in (pair.baseline, pair.other)]
    count = len(pair.common)
    words = "the problem" if count == 1 else f"the {count:,} problems"
    if max(solved) == count:
        return f"{words} of both"
    return f"{words} that both have solved (of {solved[0]:,} and {solved[1]:,})"


def _ratio(baseline: float, other: float) -> str:
    return f"{other / baseline:.2f} times" if baseline else ""


def _runs_table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        table.add_column(heading, justify="right", overflow="fold")
    return table
