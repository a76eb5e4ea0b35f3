"""Runs in the terminal: one by itself, several side by side and problem by problem, or a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from textwrap import wrap

from rich.console import Console, Group, RenderableType
from rich.text import Text

from tts.runs.compare import Comparison
from tts.runs.config import NOT_REPRODUCIBLE, RunConfig
from tts.runs.engine_steps import prefixes_missed
from tts.runs.folder import has_finished, is_worked_on
from tts.runs.groups import ListedRun, State
from tts.runs.rows import Row, asked_alike, summary_of
from tts.runs.run import Run
from tts.runs.summary import Summary
from tts.runs.tables import Answer
from tts.search.allocation import MIN_PROBLEMS

from .console import Sheet, consoles, table
from .figures.charts import Cell, Figure, count_of, percent
from .figures.comparison import over_n
from .figures.pairs import MOST_PAIRS, pairs_figures
from .figures.results import results_figures
from .figures.run import READ, by_text, figures_of, warnings_of

_MOST_ROWS = 20
"""Rows of a figure in the terminal; the page has all."""
_HEADING = 10
"""Characters in a line of a heading."""
_STYLES: dict[State, str] = {
    "finished": "green",
    "running": "cyan",
    "interrupted": "yellow",
    "damaged": "red",
}


def print_report(comparison: Comparison, console: Console | None = None) -> None:
    """Print the tables of runs, and where they are kept; without a console to stdout."""
    console = console or consoles()[0]
    if comparison.rows:
        console.print(tables(comparison.rows))
    if len(comparison.runs) == 1 and not comparison.unfinished:
        summary = comparison.rows[0].summary
        readings = [
            f"{figure.title}: {figure.reading}" for figure in figures_of(comparison.runs[0], READ)
        ]
        for line in (*limit_lines(summary), *work_lines(summary), *readings):
            console.print(line, markup=False, soft_wrap=True)
    if comparison.pairs:
        if not comparison.settings:
            console.print("The runs were asked for the same.")
        for figure in pairs_figures(comparison):
            if not figure.name.startswith("by-problem"):  # a row for each: for the page
                console.print(figure_table(figure))
        if (more := len(comparison.pairs) - MOST_PAIRS) > 0:
            console.print(
                f"{more} more runs are not compared with {comparison.names[0]} by problem."
            )
    _print_folders(comparison, console)


def print_answers(answers: Sequence[Answer]) -> None:
    """Print a row for each answer to stdout."""
    judged = any(answer.correct is not None for answer in answers)
    sheet = table("id", "answer", right=("score", "tokens", *(["correct"] if judged else [])))
    for each in answers:
        sheet.add_row(
            Text(each.id),
            Text("-" if each.answer is None else each.answer),
            "-" if each.score is None else f"{each.score:.4f}",
            f"{each.tokens:,}",
            *([{None: "-", True: "yes", False: "no"}[each.correct]] if judged else []),
        )
    consoles()[0].print(Sheet(sheet, keys=1))


def figure_table(figure: Figure) -> RenderableType:
    """A figure as its title and the first rows of its table."""
    rows = figure.rows[:_MOST_ROWS]
    words = [name for name in figure.columns if any(isinstance(row[name], str) for row in rows)]
    numbers = [name for name in figure.columns if name not in words]
    sheet = table(*words, right=numbers)
    for row in rows:
        sheet.add_row(*(Text(_cell(row[name])) for name in (*words, *numbers)))
    more = len(figure.rows) - _MOST_ROWS
    notes = [*figure.notes, *([f"{more:,} more are on the page."] if more > 0 else [])]
    return Group(
        _title(figure.title),
        Sheet(sheet),
        *(Text(note, style="dim") for note in notes),
    )


def _cell(cell: Cell) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int | float):
        return f"{cell:,g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return cell or "-"


def _print_folders(comparison: Comparison, console: Console) -> None:
    """Where the runs are kept, what is left of them to do, and what to know of their numbers."""

    def warn(line: str) -> None:
        console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)

    for folder in comparison.folders:
        kind = "group folder" if str(folder) in comparison.unfinished else "run folder"
        console.print(f"{kind}: {folder}", style="dim", highlight=False, soft_wrap=True)
        if names := comparison.unfinished.get(str(folder)):
            warn(f"not finished: {', '.join(names)}. Continue with: tts bench --resume {folder}")
    lines: list[tuple[str, str]] = []
    for name, run in zip(comparison.names, comparison.runs, strict=True):
        texts = [*_remote_lines(run.config), *_changed_lines(run), *_missed_lines(run.folder)]
        texts += warnings_of(summary_of(run))
        if is_worked_on(run.folder):
            texts.append("not finished: the run goes on")
        elif not has_finished(run.folder):
            texts.append(f"not finished. Continue with: tts bench --resume {run.folder}")
        lines += ((name, text) for text in texts)
    for whose, text in by_text(lines, len(comparison.runs)):
        warn(text if len(comparison.runs) == 1 else f"{whose}: {text}")


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
    parts: list[RenderableType] = []
    for alike in asked_alike(rows):
        parts += [_header(alike)]
        for figure in results_figures(alike):
            first = figure.name == "results"
            parts += [Text() if first else _title(figure.title), *_sheet(figure)]
        parts += [*_curves(alike), Text()]
    return Group(*parts)


def _sheet(figure: Figure) -> Iterator[RenderableType]:
    """A figure whose first column holds names, with its notes."""
    name, *numbers = figure.columns
    sheet = table(name, right=["\n".join(wrap(each, _HEADING)) for each in numbers])
    for row in figure.rows:
        cells = [row[each] for each in figure.columns]
        sheet.add_row(*(Text(each if isinstance(each, str) else _cell(each)) for each in cells))
    yield Sheet(sheet)
    yield from (Text(note, style="dim") for note in figure.notes)


def _header(rows: Sequence[Row]) -> Text:
    def all_of(values: Iterable[object]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values))

    return Text(
        f"deployment {all_of(row.summary.deployment for row in rows)}, "
        f"dataset {all_of(Path(row.summary.dataset).name for row in rows)}: "
        f"{all_of(count_of(row.summary.problems, 'problem') for row in rows)}, "
        f"schedule {all_of(row.summary.schedule for row in rows)}, "
        f"seed {all_of(row.summary.seed for row in rows)}",
        style="bold",
    )


def _curves(rows: Sequence[Row]) -> list[RenderableType]:
    figure = over_n(rows, [])
    if figure is None:
        return []
    shares: dict[str, dict[Cell, float]] = {}
    for row in figure.rows:
        accuracy = float(row["accuracy"] or 0.0)
        shares.setdefault(str(row["strategy"]), {})[row["n"]] = accuracy
    sizes = sorted({int(row["n"] or 0) for row in figure.rows})
    sheet = table("strategy", right=tuple(map(str, sizes)))
    for name, by_n in shares.items():
        sheet.add_row(Text(name), *(f"{by_n[n]:.1%}" if n in by_n else "" for n in sizes))
    notes = (Text(note, style="dim") for note in (figure.reading, *figure.notes))
    return [_title("accuracy over n"), Sheet(sheet), *notes]


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
    for name, did in (summary.servers or {}).items():
        lines.append(
            f"server {name}: {did.generator_requests:,} requests for steps, "
            f"{did.generated_tokens:,} tokens, {did.verifier_requests:,} scores"
        )
    return lines


def limit_lines(summary: Summary) -> list[str]:
    """One run: the budget that n was fitted to, how many problems came to a limit, and which."""
    limits, limited = summary.limits or {}, summary.limited or {}
    generated = summary.generated_tokens + summary.critique_tokens
    lines = []
    if tokens := (summary.fitted_to or {}).get("budget_tokens"):
        lines.append(
            f"budget of {tokens:,} generated tokens a problem on average: n={summary.n} is fitted "
            f"to it, and took {generated / max(1, summary.problems):,.0f}"
        )
    if tokens := limits.get("budget_tokens"):
        cut = f"{limited.get('tokens', 0):,} of {summary.problems:,} problems"
        budget = f"budget of {tokens:,} generated tokens a problem"
        if summary.strategy == "auto":
            share = "on average"
            if summary.problems < MIN_PROBLEMS:
                share = f"at most (in runs of {MIN_PROBLEMS} problems or more: on average)"
            lines.append(f"{budget} {share}; {cut} were cut short")
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
    sheet = table("run", "began", "state", right=("done", "accuracy", "n"))
    for heading in ("strategy", "verifier", "deployment", "dataset"):
        sheet.add_column(heading, no_wrap=True)
    for run in runs:
        dataset = run.dataset and Path(run.dataset).name
        began = run.began and datetime.fromisoformat(run.began).astimezone()
        sheet.add_row(
            Text(run.name),
            f"{began:%Y-%m-%d %H:%M}" if began else "-",
            Text(run.state, _STYLES[run.state]),
            "-" if run.problems is None else f"{run.problems_done:,} of {run.problems:,}",
            "-" if run.accuracy is None else f"{100 * run.accuracy:.1f}%",
            "-" if run.n is None else str(run.n),
            *(Text(each or "-") for each in (run.strategy, run.verifier, run.deployment, dataset)),
        )
    damages = [Text(f"{run.name}: {run.damage}", "red") for run in runs if run.damage]
    return Group(Sheet(sheet, keys=1), *damages)


def _title(text: str) -> Text:
    return Text(f"\n{text}\n", style="bold")
