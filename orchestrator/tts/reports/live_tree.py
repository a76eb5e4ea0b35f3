"""What the search commands show: the live tree, the answer, tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text
from rich.tree import Tree as RichTree

from tts.lab.observer import Observer
from tts.runs.compare import in_order, read_rows
from tts.runs.config import ReplaySource
from tts.runs.groups import is_group, read_group
from tts.runs.summary import Summary, read_summary
from tts.search import Fate, Limit, Tree
from tts.session import Result, RunProgress, Step

from .comparison import comparison_tables
from .console import consoles, redraw_after_resize
from .folded_tree import Branch, folded, newest
from .runs import print_report, replay_line
from .waiting import StartLines

_AROUND = 3  # lines of the screen for the question, the note and the cursor
FATE_STYLE = {
    Fate.OPEN: "yellow",
    Fate.EXPANDED: "bold",
    Fate.PRUNED: "dim strike",
    Fate.COMPLETED: "green",
    Fate.SURPLUS: "dim green",
    Fate.LOOKAHEAD: "dim italic",
}

_LIMITED: dict[Limit, str] = {
    "tokens": "The budget of tokens was spent before the search had ended: the best answer so far.",
    "deadline": "The deadline came before the search had ended: the best answer by then.",
}


def report_run(folders: Sequence[Path], summaries: Sequence[Summary]) -> None:
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
        if line := _replay_line(folder):
            out.print(line, style="yellow", highlight=False, soft_wrap=True)
        if unfinished:
            left = ", ".join(unfinished)
            way_on = f"not finished: {left}. Continue with: tts bench --resume {folder}"
            out.print(way_on, style="yellow", markup=False, soft_wrap=True)


def _replay_line(folder: Path) -> str | None:
    if is_group(folder):
        replay = read_group(folder)[0].get("replay")
        return replay_line(msgspec.convert(replay, ReplaySource | None))
    summary = read_summary(folder)
    return replay_line(summary.replay, summary.tree_digest)


class LiveTree(StartLines, Observer):
    """The tree of one problem while it grows, then its answer; see tts.lab.observer.

    Equal siblings are one line; where the screen is too low the newest branches are shown.
    """

    def __init__(self, question: str, console: Console | None = None) -> None:
        """Draw on stderr if no console is given."""
        self._question = question
        self._tree: Tree | None = None
        self._live: Live | None = None
        super().__init__(console)
        self._out, _ = consoles()
        self._size = self._console.size

    def began(self, run: RunProgress, title: str, folder: Path) -> None:
        """See Observer; draws if there is a terminal to draw on."""
        self._waiting.end()
        if self._console.is_terminal:
            self._size = self._console.size
            self._live = Live(
                get_renderable=self._draw, console=self._console, auto_refresh=False, transient=True
            )
            self._live.start()

    def changed(self) -> None:
        """See Observer."""
        if self._live:
            self._size = redraw_after_resize(self._console, self._live, self._size)
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
        for best in result.completions[:1]:  # there may be none by a deadline
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

        if result.limit:
            self._out.print(_LIMITED[result.limit], style="yellow", markup=False)

    def _draw(self) -> RenderableType:
        tree = self._tree
        if tree is None:
            return Text("waiting for the generator ...", style="dim")
        nodes = list(tree)
        shown = [node for node in nodes if node.thought and node.fate is not Fate.PRUNED]
        root = folded(shown)
        lines = max(1, self._console.height - _AROUND)
        drawn = RichTree(_one_line(Text(self._question, style="bold")))
        places: dict[Branch | None, RichTree] = {root: drawn}
        for branch in newest(root, lines):
            label = _line(branch.score, branch.text, FATE_STYLE[branch.fate], len(branch.nodes))
            places[branch] = places.get(branch.parent, drawn).add(_one_line(label))
        pruned = sum(node.fate is Fate.PRUNED for node in nodes)
        hidden = len(shown) - sum(len(branch.nodes) for branch in places if branch)
        note = f"{len(nodes)} thoughts, {pruned} pruned" + f", {hidden} not drawn" * bool(hidden)
        return Group(drawn, _one_line(Text(note, style="dim")))


def _line(score: float | None, text: str, style: str, count: int = 1) -> Text:
    line = Text("  ...  " if score is None else f"{score:.4f} ", style="cyan")
    if count > 1:
        line.append(f"{count} x ", style="cyan")
    return line.append(" ".join(text.split()), style=style)


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
