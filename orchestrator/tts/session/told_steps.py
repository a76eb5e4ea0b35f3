"""What a search is told, as steps for the program's callback."""

from __future__ import annotations

from collections.abc import Callable

from tts.problem import Problem
from tts.search import Generated, NodePath, Scored, Search

from .result import Step


class ToldSteps:
    """What a search is told, as steps for the program's callback."""

    def __init__(self, problem: Problem, on_step: Callable[[Step], None]) -> None:
        self.search: Search | None = None
        self._problem = problem
        self._on_step = on_step
        self._texts: dict[NodePath, str] = {}
        self._scored: set[NodePath] = set()

    def tell(self, result: Generated | Scored) -> None:
        """A step was written, or scored; a search that has moved to another server repeats them."""
        if isinstance(result, Scored):
            if result.node not in self._scored:
                self._scored.add(result.node)
                self._step(result.node, result.score)
            return
        node = result.node
        for thought in result.thoughts:
            if node not in self._texts:
                self._texts[node] = thought.text
                self._step(node, None)
            node = (*node, 0)

    def _step(self, node: NodePath, score: float | None) -> None:
        tree = self.search.tree if self.search else None
        self._on_step(Step(self._problem, node, self._texts[node], score, tree))
