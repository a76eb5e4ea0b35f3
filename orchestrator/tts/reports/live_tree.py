"""What the search commands show: the live tree, the answer, tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text
from rich.tree import Tree as RichTree

from tts.analysis.comparison import in_order, read_rows
from tts.reports.console import consoles, say
from tts.runlog.folder import read_summary
from tts.runlog.groups import is_group, read_group
from tts.search import Fate, NodePath, Tree
from tts.session import Result, RunProgress, Step

from .comparison import comparison_tables
from .runs import print_report, replay_line

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


class LiveTree:
    """The tree of one problem while it grows, then its answer; see tts.bench.observer.Observer."""

    MAX_LINES = 40  # deeper than most terminals are tall: the rest is counted, not drawn

    def __init__(self, question: str) -> None:
        self._question = question
        self._tree: Tree | None = None
        self._live: Live | None = None
        self._out, self._console = consoles()

    def say(self, line: str) -> None:
        """See Observer."""
        say(line, self._console)

    def began(self, run: RunProgress, title: str) -> None:
        """See Observer; draws if there is a terminal to draw on."""
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._draw, console=self._console, auto_refresh=False, transient=True
            )
            self._live.start()

    def changed(self) -> None:
        """See Observer."""
        if self._live:
            self._live.refresh()

    def ended(self) -> None:
        """See Observer."""
        if self._live:
            self._live.stop()
            self._live = None

    def step(self, step: Step) -> None:
        """A step was written or scored."""
        self._tree = step.tree

    def print_answer(self, result: Result) -> None:
        """Print the best chain and the answers."""
        best = result.completions[0]
        for score, text in zip(best.step_scores, best.steps, strict=True):
            if text:
                self._out.print(_line(score, text, "green"))
        self._out.print(f"answer: {result.answer} ({result.vote})", style="bold", markup=False)
        others = [
            f"{rule}: {answer}"
            for rule, answer in result.answers.items()
            if rule != result.vote and answer is not None
        ]
        if others:
            self._out.print(f"by other rules: {', '.join(others)}", style="dim", markup=False)

    def _draw(self) -> RenderableType:
        tree = self._tree
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
