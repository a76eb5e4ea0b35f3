"""What became of the expansions that were sent before their search asked for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tts.search import NodePath

from .records import EngineRequest


@dataclass(slots=True)
class _Ahead:
    """Speculative expansions of a problem whose search goes on."""

    answered: Counter[NodePath] = field(default_factory=Counter)
    """Tokens, by node."""
    sent: set[NodePath] = field(default_factory=set)
    used: set[NodePath] = field(default_factory=set)
    """What the search asked for: perhaps before the answer came."""


class SpeculationOutcome:
    """The outcome of expansions that were sent before their search asked for them.

    One sent twice, after a cancellation, counts twice. Once a problem is solved, its nodes are
    forgotten: nothing more of it is used.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.answered = 0
        self.cancelled: Counter[str] = Counter()
        """Cancelled expansions by reason, also used ones whose search ended first."""
        self._used = 0
        self._unused_tokens = 0
        self._open: dict[str, _Ahead] = {}

    def add(self, request: EngineRequest) -> None:
        """Take in a speculative request."""
        nodes = self._open.setdefault(request.problem, _Ahead())
        nodes.sent.add(request.node)
        self.sent += 1
        if request.cancelled is not None:
            self.cancelled[request.cancelled] += 1
        else:
            self.answered += 1
            nodes.answered[request.node] += request.tokens or 0

    def use(self, problem: str, node: NodePath) -> None:
        """Its search has asked for a node that had been sent ahead."""
        self._open.setdefault(problem, _Ahead()).used.add(node)

    def solved(self, problem: str) -> int:
        """Settle a problem's nodes; the tokens of its answers that its search did not ask for.

        A used expansion that has not ended yet is still awaited.
        """
        nodes = self._open.pop(problem, _Ahead())
        unused = _unused(nodes)
        self._used += len(nodes.sent & nodes.used)
        self._unused_tokens += unused
        if awaited := nodes.used - nodes.sent:
            self._open[problem] = _Ahead(used=awaited)
        return unused

    @property
    def used(self) -> int:
        """How many their search asked for in the end; the others were not needed."""
        return self._used + sum(len(nodes.sent & nodes.used) for nodes in self._open.values())

    @property
    def unused_tokens(self) -> int:
        """Tokens of answers that no search asked for."""
        return self._unused_tokens + sum(map(_unused, self._open.values()))

    @property
    def hit_rate(self) -> float | None:
        """Used over sent; None without any."""
        return self.used / self.sent if self.sent else None


def _unused(nodes: _Ahead) -> int:
    return sum(tokens for node, tokens in nodes.answered.items() if node not in nodes.used)
