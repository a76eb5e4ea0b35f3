"""Runs in the terminal: one by itself, several side by side and problem by problem, or a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from tts.runs.answers import Answer
from tts.runs.compare import Comparison, Row, asked_alike, best_of, label, summary_of, varying
from tts.runs.config import NOT_REPRODUCIBLE, RunConfig
from tts.runs.engine_steps import prefixes_missed
from tts.runs.folder import has_finished
from tts.runs.listing import ListedRun, State
from tts.runs.run import Run
from tts.runs.statistics import half_width
from tts.runs.summary import Summary

from .console import consoles
from .figures.accuracy import RULE_NAMES
from .figures.charts import flops, percent
from .figures.comparison import MOST_PAIRS, budget_in_words, over_n, pairs_figures
from .figures.figure import Cell, Figure
from .figures.run import READ, figures_of, warnings_of
from .sheet import Sheet, table

_MOST_ROWS = 20
"""Rows of a figure in the terminal; the page has all."""
_STYLES: dict[State, str] = {
    "finished": "green",
    "running": "cyan",
    "interrupted": "yellow",
    "damaged": "red",
}


def print_report(found: Comparison, console: Console | None = None) -> None:
    """Print the tables of runs, and where they are kept; without a console to stdout."""
    console = console or consoles()[0]
    if found.rows:
        console.print(tables(found.rows))
    if len(found.runs) == 1 and not found.unfinished:
        summary = found.rows[0].summary
        readings = [
            f"{figure.title}: {figure.reading}" for figure in figures_of(found.runs[0], READ)
        ]
        for line in (*limit_lines(summary), *work_lines(summary), *readings):
            console.print(line, markup=False, soft_wrap=True)
    if found.pairs:
        if not found.settings:
            console.print("The runs were asked for the same.")
        for figure in pairs_figures(found):
            if not figure.name.startswith("by-problem"):  # a row for each: for the page
                console.print(figure_table(figure))
        if (more := len(found.pairs) - MOST_PAIRS) > 0:
            console.print(f"{more} more runs are not compared with {found.names[0]} by problem.")
    _print_folders(found, console)


def print_answers(answers: Sequence[Answer]) -> None:
    """Print a row for each answer to stdout."""
    judged = any(answer.correct is not None for answer in answers)
    shown = table("id", "answer", right=("score", "tokens", *(["correct"] if judged else [])))
    for each in answers:
        shown.add_row(
            Text(each.id),
            Text("-" if each.answer is None else each.answer),
            "-" if each.score is None else f"{each.score:.4f}",
            f"{each.tokens:,}",
            *([{None: "-", True: "yes", False: "no"}[each.correct]] if judged else []),
        )
    consoles()[0].print(Sheet(shown, keys=1))


def figure_table(figure: Figure) -> RenderableType:
    """A figure as its title and the first rows of its table."""
    rows = figure.rows[:_MOST_ROWS]
    words = [name for name in figure.columns if any(isinstance(row[name], str) for row in rows)]
    numbers = [name for name in figure.columns if name not in words]
    shown = table(*words, right=numbers)
    for row in rows:
        shown.add_row(*(Text(_cell(row[name])) for name in (*words, *numbers)))
    more = len(figure.rows) - _MOST_ROWS
    notes = [*figure.notes, *([f"{more:,} more are on the page."] if more > 0 else [])]
    return Group(
        _title(figure.title),
        Sheet(shown),
        *(Text(note, style="dim") for note in notes),
    )


def _cell(cell: Cell) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int | float):
        return f"{cell:,g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return cell or "-"


def _print_folders(found: Comparison, console: Console) -> None:
    """Where the runs are kept, what is left of them to do, and what to know of their numbers."""

    def warn(line: str) -> None:
        console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)

    for folder in found.folders:
        kind = "group folder" if str(folder) in found.unfinished else "run folder"
        console.print(f"{kind}: {folder}", style="dim", highlight=False, soft_wrap=True)
        if left := found.unfinished.get(str(folder)):
            warn(f"not finished: {', '.join(left)}. Continue with: tts bench --resume {folder}")
    for run in found.runs:
        lines = [*_remote_lines(run.config), *_changed_lines(run), *_missed_lines(run.folder)]
        lines += warnings_of(summary_of(run))
        if not has_finished(run.folder):
            lines.append(f"not finished. Continue with: tts bench --resume {run.folder}")
        for line in lines:
            warn(line if len(found.runs) == 1 else f"{run.folder.name}: {line}")


def _changed_lines(run: Run) -> list[str]:
    """Warnings of functions that were not the same for all problems."""
    return [
        f"{Path(run.config.sources[role].file).name} was changed: the first {change.solved} "
        f"problems were solved with another {role} than the rest."
        for role, change in run.totals.run.changed.items()
        if role in run.config.sources
    ]


def _missed_lines(folder: Path) -> list[str]:
    """A warning of a pool that dropped prefixes which the run came back to."""
    missed = prefixes_missed(folder, "generator")
    if not missed:
        return []
    return [
        f"generator: its KV pool had dropped a prefix of {missed:,} prompts, which was computed "
        "again; in rare cases another schedule then grows another tree. Raise kv_cache.tokens."
    ]


def _remote_lines(config: RunConfig) -> list[str]:
    """Lines that say which engines of a run ran already."""
    lines = [
        f"{role} at {', '.join(each.url)}" + (f": {each.servers[0]}" if each.servers else "")
        for role, each in config.remotes.items()
    ]
    if any(each.reproducible is False for each in config.remotes.values()):
        lines.append(NOT_REPRODUCIBLE)
    return lines


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
        *_curves(rows),
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
    columns: dict[str, list[str]] = {
        "n": [str(row.n) for row in rows],
        "budget": [budget_in_words(row.budget) for row in rows],
        "accuracy (95%)": [accuracy_cell(row.accuracy, row.problems) for row in rows],
        "against\nthe best (95%)": _against_the_best(rows),
        "tokens": [f"{row.tokens_per_problem:,.0f}" for row in rows],
        "compute": _compute(rows),
        "verifier\ncalls": [f"{row.verifier_calls_per_problem:,.1f}" for row in rows],
        "seconds": [
            "-" if (seconds := row.seconds_per_problem) is None else f"{seconds:,.2f}"
            for row in rows
        ],
        "wall s\nof the run": [f"{row.wall_s:,.1f}" for row in rows],
        "speed-up": [_speed_up(row, rows) for row in rows],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    numbers = table("strategy", right=tuple(shown))
    for name, *cells in zip(names, *shown.values(), strict=True):
        numbers.add_row(Text(name), *cells)
    note = (
        "Tokens (generated by both models, without speculation in vain), compute (both models, "
        "each prefix once), verifier calls and seconds (from start to answer) are means of a "
        "problem."
    )
    lines = [note, *_no_compute(rows, names)]
    return Group(Sheet(numbers), *(Text(line, style="dim") for line in lines))


def _compute(rows: Sequence[Row]) -> list[str]:
    known = [row.compute_per_problem for row in rows]
    if not any(known):
        return [""] * len(rows)
    return ["-" if value is None else flops(value) for value in known]


def _no_compute(rows: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    """Whose compute is not known, and why."""
    whose: dict[str, list[str]] = {}
    for name, row in zip(names, rows, strict=True):
        if row.no_compute:
            whose.setdefault(row.no_compute, []).append(name)
    for why, having in whose.items():
        of = "" if len(having) == len(rows) else f" of {', '.join(dict.fromkeys(having))}"
        yield f"No compute{of}: {why}."


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
    if gain is None:
        return "-"
    return f"{100 * gain.mean:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"


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
    cells = {
        f"{name}, n={row.n}": {
            level: entry["accuracy"] for level, entry in row.accuracy_by_level.items()
        }
        for name, row in zip(names, rows, strict=True)
    }
    return [_title("accuracy by level (problems)"), _percentages(headings, cells)]


def _rules(runs: Sequence[Sequence[Row]], also: Sequence[str]) -> list[RenderableType]:
    if all(sharing[0].accuracy is None for sharing in runs):
        return []
    shown = table("strategy", right=("n", *RULE_NAMES.values(), "any of n\n(pass@n)"))
    for sharing in runs:
        row, own = sharing[0], {each.vote for each in sharing}
        by_rule = {str(rule): share for rule, share in row.summary.accuracy_by_rule.items()}
        cells = [
            accuracy_cell(by_rule.get(rule), row.problems) + (" *" if rule in own else "  ")
            for rule in RULE_NAMES
        ]
        name = ", ".join(label(each, also) for each in sharing)
        shown.add_row(Text(name), str(row.n), *cells, accuracy_cell(row.pass_at_n, row.problems))
    undecided = sum(sharing[0].summary.undecided for sharing in runs)
    notes = ["* the strategy's own rule"]
    if undecided:
        notes.append(f"{undecided} comparisons undecided, counted as wrong")
    return [
        _title("accuracy by rule (95%)"),
        Sheet(shown),
        *(Text(line, style="dim") for line in notes),
    ]


def _curves(rows: Sequence[Row]) -> list[RenderableType]:
    figure = over_n(rows, [])
    if figure is None:
        return []
    shares: dict[str, dict[Cell, Cell]] = {}
    for row in figure.rows:
        shares.setdefault(str(row["strategy"]), {})[row["n"]] = row["accuracy"]
    sizes = sorted({int(row["n"] or 0) for row in figure.rows})
    return [
        _title("accuracy over n"),
        _percentages({size: str(size) for size in sizes}, shares),
        *(Text(note, style="dim") for note in (figure.reading, *figure.notes)),
    ]


def _percentages(
    headings: Mapping[Any, str], shares: Mapping[str, Mapping[Any, Any]]
) -> RenderableType:
    """A row of percentages for each name."""
    shown = table("strategy", right=tuple(headings.values()))
    for name, row in shares.items():
        shown.add_row(Text(name), *(f"{row[each]:.1%}" if each in row else "" for each in headings))
    return Sheet(shown)


def accuracy_cell(share: float | None, problems: int) -> str:
    """`82.5% ±5.4`: the Wilson 95% interval's half width, which is sane at 0 and 1 too."""
    if share is None or not problems:
        return "-"
    return f"{100 * share:.1f}% ±{100 * half_width(share, problems):.1f}"


def work_lines(summary: Summary) -> list[str]:
    """One run: what its figures do not say."""
    lines = []
    if summary.mean_completions is not None:
        of = "" if summary.n is None else f" of n={summary.n:,}"  # a function's searches have no n
        lines.append(f"completions per problem: {summary.mean_completions:,.1f}{of}")
    if thinking := summary.thinking:
        share = thinking.tokens / max(1, summary.generated_tokens)
        lines.append(
            f"thinking: {thinking.tokens:,} tokens, {percent(share)} of the generated ones; "
            f"{thinking.unclosed:,} completions ended inside it, without an answer"
        )
    if summary.critique_tokens:
        lines.append(
            f"critiques: {summary.critique_tokens:,} tokens for {summary.verifier_calls:,} scores; "
            f"{summary.no_verdict:,} critiques have no verdict"
        )
    if summary.calibration:
        points = ", ".join(f"[{score:g}, {worth:.3g}]" for score, worth in summary.calibration)
        lines.append(f"what scores were worth (verifier.calibration): [{points}]")
    for name, did in (summary.servers or {}).items():
        lines.append(
            f"server {name}: {did.generator_requests:,} thoughts, "
            f"{did.generated_tokens:,} tokens, {did.verifier_requests:,} scores"
        )
    return lines


def limit_lines(summary: Summary) -> list[str]:
    """One run: the budget that n was fitted to, how many problems came to a limit, and which."""
    limits, limited = summary.limits or {}, summary.limited or {}
    written = summary.generated_tokens + summary.critique_tokens
    lines = []
    if tokens := (summary.fitted_to or {}).get("budget_tokens"):
        lines.append(
            f"budget of {tokens:,} generated tokens a problem on average: n={summary.n} is fitted "
            f"to it, and took {written / max(1, summary.problems):,.0f}"
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


def listed_table(runs: Sequence[ListedRun]) -> RenderableType:
    """A row for each of the recorded runs, and a line for each that is damaged."""
    shown = table("run", "began", "state", right=("done", "accuracy", "n"))
    for heading in ("strategy", "verifier", "deployment", "dataset"):
        shown.add_column(heading, no_wrap=True)
    for run in runs:
        dataset = run.dataset and Path(run.dataset).name
        began = run.began and datetime.fromisoformat(run.began).astimezone()
        shown.add_row(
            Text(run.name),
            f"{began:%Y-%m-%d %H:%M}" if began else "-",
            Text(run.state, _STYLES[run.state]),
            "-" if run.problems is None else f"{run.problems_done:,} of {run.problems:,}",
            "-" if run.accuracy is None else f"{100 * run.accuracy:.1f}%",
            "-" if run.n is None else str(run.n),
            *(Text(each or "-") for each in (run.strategy, run.verifier, run.deployment, dataset)),
        )
    damages = [Text(f"{run.name}: {run.damage}", "red") for run in runs if run.damage]
    return Group(Sheet(shown, keys=1), *damages)


def _title(text: str) -> Text:
    return Text(f"\n{text}\n", style="bold")
