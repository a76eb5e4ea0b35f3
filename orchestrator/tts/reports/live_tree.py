"""The tree of one problem while it grows, on as many lines as there are.

Equal siblings are folded into one branch, and the newest branches shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text
from rich.tree import Tree as RichTree

from tts.lab.observer import Observer
from tts.search import Fate, Limit, Node, NodePath, Thought, Tree
from tts.session import Result, RunProgress, Step

from .console import consoles, redraw_after_resize
from .progress import ProgressLines

_MOST_ALIVE = (Fate.EXPANDED, Fate.OPEN, Fate.COMPLETED, Fate.SURPLUS, Fate.PRUNED)


@dataclass(eq=False)
class Branch:
    """Siblings of one text, and below them all that grew on any of them. The root has no nodes."""

    parent: Branch | None = None
    text: str = ""
    nodes: list[Node] = field(default_factory=list)
    children: dict[str, Branch] = field(default_factory=dict)
    newest: int = -1
    """Place of its newest node among all, in the order in which they came."""

    @property
    def score(self) -> float | None:
        """The first score there is: equal siblings are scored by one call."""
        return next((node.score for node in self.nodes if node.score is not None), None)

    @property
    def fate(self) -> Fate:
        """What became of the one that came furthest."""
        return min((node.fate for node in self.nodes), key=_MOST_ALIVE.index)

    def below(self) -> Iterator[Branch]:
        """All branches below this one, each before its own."""
        for child in self.children.values():
            yield child
            yield from child.below()

    def chain(self) -> Iterator[Branch]:
        """The branch and those above it, without the root."""
        branch: Branch | None = self
        while branch and branch.parent:
            yield branch
            branch = branch.parent


def folded(nodes: Iterable[Node]) -> Branch:
    """The root of the tree that `nodes`, in the order in which they came, make up.

    Nodes without a thought, and those below one that is left out, are left out.
    """
    root = Branch()
    branches: dict[NodePath, Branch] = {(): root}
    for place, node in enumerate(nodes):
        parent = branches.get(node.path[:-1])
        if parent is None or node.thought is None:
            continue
        text = _shown(node.thought)
        branch = parent.children.setdefault(text, Branch(parent, text))
        branch.nodes.append(node)
        branch.newest = place
        branches[node.path] = branch
    return root


def _shown(thought: Thought) -> str:
    """A thought on one line; thinking, which may be long, by its length."""
    if thought.thinking:
        return f"({len(thought.token_ids):,} tokens of thinking)"
    return " ".join(thought.text.split())


def newest(root: Branch, lines: int) -> list[Branch]:
    """At most `lines` branches, each after the one it grows on: the newest and those above them.

    If a branch is deeper than `lines`, its lowest part is shown.
    """
    visible: set[Branch] = set()
    for branch in sorted(root.below(), key=lambda branch: branch.newest, reverse=True):
        missing = [each for each in branch.chain() if each not in visible]
        if len(visible) + len(missing) > lines:
            if not visible:
                visible.update(missing[:lines])
            break
        visible.update(missing)
    return [branch for branch in root.below() if branch in visible]


_AROUND = 3  # lines of the screen for the question, the note and the cursor
FATE_STYLE = {
    Fate.OPEN: "yellow",
    Fate.EXPANDED: "bold",
    Fate.PRUNED: "dim strike",
    Fate.COMPLETED: "green",
    Fate.SURPLUS: "dim green",
}

_LIMITED: dict[Limit, tuple[str, str]] = {
    "tokens": (
        "The budget of tokens was spent before the search had ended",
        "the best answer so far.",
    ),
    "deadline": ("The deadline came before the search had ended", "the best answer by then."),
}


class LiveTree(ProgressLines, Observer):
    """The tree of one problem while it grows; see tts.lab.observer.

    Equal siblings are one line; where the screen is too low the newest branches are shown.
    """

    def __init__(self, question: str, console: Console | None = None) -> None:
        """Draw on stderr if no console is given."""
        self._question = question
        self._tree: Tree | None = None
        self._live: Live | None = None
        super().__init__(console)
        self._size = self._console.size

    def began(self, run: RunProgress, title: str) -> None:
        """See Observer; draws if there is a terminal to draw on."""
        self._waited()
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

    def _draw(self) -> RenderableType:
        tree = self._tree
        if tree is None:
            return Text("waiting for the generator ...", style="dim")
        nodes = list(tree)
        alive = [node for node in nodes if node.thought and node.fate is not Fate.PRUNED]
        root = folded(alive)
        lines = max(1, self._console.height - _AROUND)
        trunk = RichTree(_one_line(Text(self._question, style="bold")))
        places: dict[Branch | None, RichTree] = {root: trunk}
        for branch in newest(root, lines):
            label = _line(branch.score, branch.text, FATE_STYLE[branch.fate], len(branch.nodes))
            places[branch] = places.get(branch.parent, trunk).add(_one_line(label))
        pruned = sum(node.fate is Fate.PRUNED for node in nodes)
        hidden = len(alive) - sum(len(branch.nodes) for branch in places if branch)
        note = f"{len(nodes)} steps, {pruned} pruned" + f", {hidden} not drawn" * bool(hidden)
        return Group(trunk, _one_line(Text(note, style="dim")))


def print_answer(result: Result, doubt: str | None = None) -> None:
    """Print the answer's best chain, what each rule chooses, doubts, and last the answer alone."""
    out, _ = consoles()
    if best := result.chosen:  # there may be none by a deadline
        for score, text in zip(best.step_scores, best.steps, strict=True):
            if text:
                out.print(_line(score, text, "green"))
    rules = [f"{rule}: {answer}" for rule, answer in result.answers.items() if answer is not None]
    if len(rules) > 1:
        line = f"by rule: {', '.join(rules)}; the strategy uses {result.vote}"
        out.print(line, style="dim", markup=False)
    if result.limit:
        what, then = _LIMITED[result.limit]
        if result.answer is None:
            then = "there is no answer yet. Give it more, or a smaller --n."
        out.print(f"{what}: {then}", style="yellow", markup=False)
    if doubt:
        out.print(doubt, style="yellow", markup=False)
    out.print(f"answer: {result.answer or 'none'}", style="bold", markup=False)


def _line(score: float | None, text: str, style: str, count: int = 1) -> Text:
    line = Text("  ...  " if score is None else f"{score:.4f} ", style="cyan")
    if count > 1:
        line.append(f"{count} x ", style="cyan")
    return line.append(" ".join(text.split()), style=style)


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
