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
from dataclasses import replace

from pydantic import Field

from .protocol import Search
from .sampling import SampleSearch, SampleSearchConfig
from .seeds import SeedOf
from .thought import Completion, Confidence, Expand, Fate, NodePath, significant
from .tree import Node, Rank
from .votes import AnswerOf

CONFIDENCE_UNIT = 1e-3
"""Confidences are rounded to this, so that float noise does not move the end of a chain."""

LEAST = -100.0
"""A log-probability below this counts as this: servers write -inf or -9999 for it."""


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
        if not self._ends:
            return min(self.config.warm_up, self.config.n)
        if self._floor is None:
            confidences = sorted(map(self._confidence, self._ends), reverse=True)
            share = significant(self.config.keep * len(confidences))
            self._floor = confidences[math.ceil(share) - 1]
        return self.config.n - len(self._ends)

    def request(self, path: NodePath, *, whole: bool) -> Expand:
        """The request of a chain, which ends below the floor."""
        watched = Confidence(self.config.window, self._floor)
        return replace(super().request(path, whole=whole), confidence=watched)

    def _finish(self, completed: Sequence[Node]) -> None:
        """End the search with the chains that reach the floor."""
        floor = -math.inf if self._floor is None else self._floor
        voters = []
        for node in completed:
            if self._confidence(node) >= floor and node.fate is Fate.COMPLETED:
                voters.append(node)
            else:
                node.fate = Fate.PRUNED
        super()._finish(voters)

    def _rank(self, node: Node) -> Rank:
        return -self._confidence(node), 0.0, node.path

    def _completion(self, node: Node) -> Completion:
        probability = significant(math.exp(self._confidence(node)))
        return Completion(node.path, self.tree.text(node.path), probability)

    def _confidence(self, node: Node) -> float:
        """The confidence of the chain that ends in a node."""
        assert node.thought is not None
        return -math.inf if node.thought.confidence is None else node.thought.confidence


class ConfidenceWatch:
    """Follows a chain's tokens as they come: its weakest window, and whether it is to end."""

    def __init__(self, request: Confidence) -> None:
        self._request = request
        self._sums = [0.0]
        """Sums of the first 0, 1, 2, ... log-probabilities."""
        self._weakest: float | None = None
        self.cut = False
        """Whether a window fell below the floor."""

    def take(self, log_probs: Sequence[float]) -> int:
        """Take in the next tokens' log-probabilities; returns how many belong to the chain."""
        window, floor = self._request.window, self._request.floor
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
        return self._request.floor is not None

    @property
    def weakest(self) -> float | None:
        """The confidence of the weakest window so far; None before the first token."""
        if self._weakest is not None or len(self._sums) == 1:
            return self._weakest
        return _rounded(self._sums[-1] / (len(self._sums) - 1))


def _rounded(confidence: float) -> float:
    return round(round(confidence / CONFIDENCE_UNIT) * CONFIDENCE_UNIT, 6)
