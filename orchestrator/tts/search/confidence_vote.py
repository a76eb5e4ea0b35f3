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

from .confidence import Confidence
from .protocol import Search
from .sampling import SampleSearch, SampleSearchConfig
from .seeds import SeedOf
from .thought import Completion, Expand, Fate, NodePath, significant
from .tree import Node, Rank
from .votes import AnswerOf


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
