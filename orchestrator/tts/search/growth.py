"""How a candidate grows: one rule for the steps that are asked for and for those foreseen."""

from __future__ import annotations

from dataclasses import replace

from .config import StepConfig
from .protocol import Expand
from .seeds import SeedOf
from .thought import NodePath, Thought


class Growth:
    """The requests that a candidate is made of.

    A candidate is `granularity` steps, or with `finish="eos"` in the last iteration the rest of the
    chain; then come up to `lookahead` greedy steps, but not in the last iteration.
    """

    def __init__(self, config: StepConfig, seed: SeedOf) -> None:
        self.config = config
        self._seed = seed
        self._sampling = config.sampling
        self._greedy = replace(config.sampling, temperature=0.0, top_p=1.0)

    def is_last(self, iteration: int) -> bool:
        """Whether this is the last iteration."""
        return iteration == self.config.num_iterations

    def is_whole(self, iteration: int) -> bool:
        """Whether this iteration generates to the end of the sequence."""
        return self.config.finish == "eos" and self.is_last(iteration)

    def first(self, path: NodePath, *, whole: bool) -> Expand:
        """What a candidate that starts at `path` asks for first."""
        return Expand(path, self._seed(path), self._sampling, whole)

    def following(self, start: int, end: NodePath, tip: NodePath, iteration: int) -> Expand | None:
        """What a candidate whose chain goes on asks for after `tip`; None if it is complete.

        `start`, `end` and `tip` are those of `Candidate`.
        """
        if len(end) - start + 1 < self.config.granularity:
            path = (*end, 0)
            return Expand(path, self._seed(path), self._sampling)
        if len(tip) - len(end) < self.config.lookahead and not self.is_last(iteration):
            path = (*tip, -1)
            return Expand(path, self._seed(path), self._greedy)
        return None


def is_lookahead(path: NodePath) -> bool:
    """Whether a node is a look-ahead step."""
    return path[-1] < 0


def goes_on(thought: Thought | None) -> bool:
    """Whether a chain can be continued after its last step, which must be there."""
    assert thought is not None
    return thought.goes_on
