"""What the search commands draw: progress bar, live tree, answer, tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text
from rich.tree import Tree as RichTree

from tts.analysis.comparison import in_order, read_rows
from tts.bench.run import Progress as RunProgress
from tts.grading.votes import Judged
from tts.reports.console import consoles, say
from tts.runlog.folder import read_summary
from tts.runlog.groups import is_group, read_group
from tts.search import Fate, NodePath, Search

from .comparison import comparison_tables
from .runs import print_report, replay_line

PLAIN_INTERVAL_S = 10.0  # how often progress is said where there is no terminal

FATE_STYLE = {
    Fate.OPEN: "yellow",
    Fate.EXPANDED: "bold",
    Fate.PRUNED: "dim strike",
    Fate.COMPLETED: "green",
    Fate.SURPLUS: "dim green",
    Fate.LOOKAHEAD: "dim italic",
}


def report_run(folders: Sequence[Path], summaries: Sequence[dict[str, Any]]) -> None:
    """Print one run's table, or several side by side."""
    out, _ = consoles()
    print_report(out, folders, summaries)


def report_comparison(folders: Sequence[Path]) -> None:
    """Print the tables of groups, and of single runs beside them; keep each group's numbers."""
    out, _ = consoles()
    read = [read_rows(folder) for folder in folders]
    if rows := in_order([row for found, _ in read for row in found]):
        out.print(comparison_tables(rows))
    for folder, (_, unfinished) in zip(folders, read, strict=True):
        kind = "group folder" if is_group(folder) else "run folder"
        out.print(f"{kind}: {folder}", style="dim", highlight=False, soft_wrap=True)
        replayed = read_group(folder)[0] if is_group(folder) else read_summary(folder)
        if line := replay_line(replayed):
            out.print(line, style="yellow", highlight=False, soft_wrap=True)
        if unfinished:
            left = ", ".join(unfinished)
            way_on = f"not finished: {left}. Continue with: tts bench --resume {folder}"
            out.print(way_on, style="yellow", markup=False, soft_wrap=True)


class ProgressBar:
    """Problems done, accuracy so far and both engines' load; one line now and then in a pipe."""

    def __init__(self, progress: RunProgress, title: str) -> None:
        """`title` says what is running."""
        self._progress = progress
        self._title = title
        _, self._console = consoles()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task(title, total=progress.total, state="")
        self._said = time.monotonic()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw while the block runs; `update` refreshes."""
        if not self._console.is_terminal:
            yield
            return
        with self._bar:
            yield
            self.update()

    def update(self) -> None:
        """Show the present state."""
        progress = self._progress
        generator, verifier = progress.in_flight()
        accuracy = f"{100 * progress.right / progress.judged:.0f}%" if progress.judged else "-"
        state = f"accuracy {accuracy}  in flight: generator {generator}, verifier {verifier}"
        if self._console.is_terminal:
            self._bar.update(self._task, completed=progress.done, state=state)
        elif time.monotonic() - self._said > PLAIN_INTERVAL_S:
            self._said = time.monotonic()
            say(f"{self._title}: {progress.done}/{progress.total}  {state}")


class LiveTree:
    """The tree of one problem while it grows, then its answer."""

    MAX_LINES = 40  # deeper than most terminals are tall: the rest is counted, not drawn

    def __init__(self, question: str) -> None:
        self._question = question
        self._search: Search | None = None
        self._judged: Judged | None = None
        self._live: Live | None = None
        self._out, self._console = consoles()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw while the block runs, if there is a terminal to draw on."""
        if not self._console.is_terminal:
            yield
            return
        live = Live(
            get_renderable=self._draw, console=self._console, auto_refresh=False, transient=True
        )
        with live:
            self._live = live
            yield

    def node(self, search: Search) -> None:
        """Something has changed in the tree."""
        self._search = search

    def update(self) -> None:
        """Draw the present state, if there is a terminal to draw on."""
        if self._live:
            self._live.refresh()

    def keep(self, search: Search, judged: Judged) -> None:
        """Take in the outcome."""
        self._search, self._judged = search, judged

    def print_answer(self, vote: str) -> None:
        """Print the best chain and the answers; `vote` names the strategy's own rule."""
        assert self._search is not None
        assert self._judged is not None
        result = self._search.result()
        assert result is not None
        for node in result.tree.chain(result.completions[0].node):
            if node.thought and node.thought.text.strip():
                self._out.print(_line(node.score, node.thought.text, "green"))
        answers = asdict(self._judged.answers)
        self._out.print(f"answer: {answers.pop(vote)} ({vote})", style="bold", markup=False)
        others = [f"{rule}: {answer}" for rule, answer in answers.items() if answer is not None]
        if others:
            self._out.print(f"by other rules: {', '.join(others)}", style="dim", markup=False)

    def _draw(self) -> RenderableType:
        tree = self._search.tree if self._search else None
        if tree is None:
            return Text("waiting for the generator ...", style="dim")
        drawn = RichTree(Text(self._question, style="bold"))
        branches: dict[NodePath, RichTree] = {(): drawn}
        hidden = 0
        shown = [node for node in tree if node.thought and node.fate is not Fate.PRUNED]
        for node in sorted(shown, key=lambda node: (len(node.path), node.path)):
            branch = branches.get(node.path[:-1])
            if branch is None or len(branches) > self.MAX_LINES:
                hidden += 1
                continue
            assert node.thought is not None
            label = _line(node.score, node.thought.text, FATE_STYLE[node.fate])
            branches[node.path] = branch.add(label)
        pruned = sum(node.fate is Fate.PRUNED for node in tree)
        note = f"{len(tree)} thoughts, {pruned} pruned" + (f", {hidden} not drawn" * bool(hidden))
        return Group(drawn, Text(note, style="dim"))


def _line(score: float | None, text: str, style: str) -> Text:
    mark = "  ...  " if score is None else f"{score:.4f} "
    line = Text(mark, style="cyan")
    return line.append(" ".join(text.split()), style=style)
