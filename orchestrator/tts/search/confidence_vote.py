"""A vote weighed by the generator's own confidence: for where there is no verifier.

    warm-up:  0 1 2 3      weakest windows -0.9, -0.4, -0.6, -0.5: a floor of -0.6 keeps 3 of 4
    the rest: 4 5 6 ...    each stops at the first token whose window falls below the floor

The confidence of a window is the mean log-probability of its tokens, and a chain's is that of its
weakest window. Chains below the floor do not vote; the others weigh the geometric mean of the
probabilities in their weakest window. After DeepConf, "Deep think with confidence" (arXiv
2508.15260), online: there the confidence of a token is the mean over the likeliest tokens of its
place, here it is that of the chosen one, which every server gives.

Where a chain stops is a function of its tokens: what an engine wrote beyond it is thrown away. The
floor follows from the warm-up alone, which is complete before any other chain is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from .protocol import Expand, Generated, Search
from .sampling import SampleSearch, SampleSearchConfig
from .thought import (
    CONFIDENCE_UNIT,
    Completion,
    Confidence,
    Fate,
    NodePath,
    SeedOf,
    Stop,
    significant,
)
from .votes import AnswerOf

LEAST = -100.0
"""A log-probability below this counts as this: servers write -inf or -9999 for it."""


class ConfidenceWatch:
    """Follows a chain's tokens as they come: its weakest window, and whether it is to end."""

    def __init__(self, asked: Confidence) -> None:
        self._asked = asked
        self._sums = [0.0]
        """Of the first 0, 1, 2, ... log-probabilities."""
        self._weakest: float | None = None
        self.cut = False
        """Whether a window fell below the floor."""

    def take(self, log_probs: Sequence[float]) -> int:
        """Take in the next tokens' log-probabilities; how many of them belong to the chain."""
        window, floor = self._asked.window, self._asked.floor
        for place, value in enumerate(log_probs):
            if self.cut:
                return place
            self._sums.append(self._sums[-1] + max(LEAST, value))
            if len(self._sums) > window:
                mean = _rounded((self._sums[-1] - self._sums[-1 - window]) / window)
                if self._weakest is None or mean < self._weakest:
                    self._weakest = mean
                self.cut = floor is not None and mean < floor
        return len(log_probs)

    @property
    def ends_chains(self) -> bool:
        """Whether there is a floor, so that tokens are wanted as they come."""
        return self._asked.floor is not None

    @property
    def weakest(self) -> float | None:
        """The confidence of the weakest window so far; None before the first token."""
        if self._weakest is not None or len(self._sums) == 1:
            return self._weakest
        return _rounded(self._sums[-1] / (len(self._sums) - 1))


class ConfidenceVoteConfig(SampleSearchConfig):
    """Parameters of the vote; `n` is the number of chains, with those of the warm-up."""

    scored: bool = False
    warm_up: int = Field(default=4, ge=1, le=100_000)
    """Chains, of the n, that are written to their ends before the floor is known."""
    keep: float = Field(default=0.75, gt=0, le=1)
    """Share of the warm-up's chains that reach the floor."""
    window: int = Field(default=128, ge=1, le=1_000_000)
    """Tokens of a window; a shorter chain is one."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return ConfidenceVoteSearch(self, seed)


class ConfidenceVoteSearch(SampleSearch):
    """Samples the warm-up, then the rest, with the seeds and the paths of `SampleSearch`."""

    config: ConfidenceVoteConfig

    def __init__(self, config: ConfidenceVoteConfig, seed: SeedOf) -> None:
        """See SampleSearch."""
        self._floor: float | None = None
        super().__init__(config, seed)

    def _more(self) -> int:
        """The warm-up, then all others."""
        if not self._wanted:
            return min(self.config.warm_up, self.config.n)
        if self._floor is None:
            reached = sorted(map(self._confidence, self._leaves.values()), reverse=True)
            self._floor = reached[math.ceil(significant(self.config.keep * len(reached))) - 1]
        return self.config.n - self._wanted

    def _expand(self, path: NodePath) -> Expand:
        watched = Confidence(self.config.window, self._floor)
        return Expand(path, self._seed(path), self.config.sampling, True, watched)

    def _grow(self, result: Generated) -> None:
        super()._grow(result)
        end = self.tree[self._generated[result.node[0]]]
        if end.thought and end.thought.stop is Stop.CUT:
            end.fate = Fate.PRUNED

    def _ranked(self) -> tuple[Completion, ...]:
        floor = -math.inf if self._floor is None else self._floor
        voting = []
        for path in sorted(self._leaves.values()):
            if self._confidence(path) >= floor and self.tree[path].fate is Fate.COMPLETED:
                voting.append(path)
            else:
                self.tree[path].fate = Fate.PRUNED
        voting.sort(key=lambda path: (-self._confidence(path), path))
        return tuple(map(self._completion, voting))

    def _completion(self, leaf: NodePath) -> Completion:
        probability = significant(math.exp(self._confidence(leaf)))
        return Completion(leaf, self.tree.text(leaf), probability)

    def _confidence(self, path: NodePath) -> float:
        """That of the chain which ends there."""
        thought = self.tree[path].thought
        assert thought is not None
        return -math.inf if thought.confidence is None else thought.confidence


def _rounded(confidence: float) -> float:
    return round(round(confidence / CONFIDENCE_UNIT) * CONFIDENCE_UNIT, 6)
