"""Adaptive sampling: chains in rounds, until the vote is probably decided.

    round 1: 0 1 2 3      5, 5, 7, 5     3 to 1: 0.81, go on
    round 2: 4 5 6 7      5, 5, 5, 2     6 to 1: 0.96, decided: 8 of n chains were enough

After each round the two answers with the most votes are compared. If v1 votes are for the first and
v2 for the second, and before any vote each share was as likely as another, the probability that the
generator gives the first one more often is

    P(p > 1/2),  p ~ Beta(v1 + 1, v2 + 1)

and the search ends once it is `threshold` or more. After Aggarwal et al., "Let's sample step by
step: adaptive-consistency for efficient reasoning and coding with LLMs" (arXiv 2305.11860), section
3.2 and the authors' `BetaStoppingCriteria`, which decides after every sample instead of every
round. In the weighted variant a vote counts its chain's score, so v1 and v2 are sums of scores.

A round is decided when it is complete, so timing has no say in it.
"""

from __future__ import annotations

import math

from pydantic import Field

from .protocol import Search
from .sampling import SampleSearch, SampleSearchConfig
from .seeds import SeedOf
from .thought import significant
from .votes import AnswerOf, Votes


class AdaptiveVoteConfig(SampleSearchConfig):
    """Parameters of adaptive sampling; `n` is the most chains that are sampled."""

    batch: int = Field(default=4, ge=1, le=100_000)
    """Chains of one round."""
    threshold: float = Field(default=0.95, ge=0.5, le=1)
    """Probability of being the majority's at which the leading answer is final; 1: never."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return AdaptiveVoteSearch(self, seed, answer_of)


class AdaptiveVoteSearch(SampleSearch):
    """Samples a round at a time, with the seeds and the paths of `SampleSearch`."""

    config: AdaptiveVoteConfig

    def __init__(self, config: AdaptiveVoteConfig, seed: SeedOf, answer_of: AnswerOf) -> None:
        """See SampleSearch."""
        self._votes = Votes(answer_of)
        self._voted = 0
        """How many chains, from the first on, have voted."""
        super().__init__(config, seed)

    def _more(self) -> int:
        """The next round, unless the vote is decided."""
        for chain in map(self._completion, self._ends[self._voted :]):
            self._votes.add(chain.text, chain.weight if self.config.scored else 1.0)
        self._voted = len(self._ends)
        return 0 if self._decided else min(self.config.batch, self.config.n - self._voted)

    @property
    def _decided(self) -> bool:
        """Whether the leader of those that have voted is probably the majority's choice."""
        if not self._voted or self.config.threshold == 1:
            return False
        # the difference is rounded like the probability: 1 - 0.95 is not 0.05
        doubt = significant(1 - self.config.threshold)
        return chance_of_reversal(*self._votes.first_and_second) <= doubt


def chance_of_reversal(first: float, second: float) -> float:
    """P(p < 1/2) for p ~ Beta(first + 1, second + 1); 1/2 unless first > second.

    This is the regularised incomplete beta function at 1/2, by its continued fraction (Press et
    al., "Numerical recipes", 6.4).
    """
    if first <= second:
        return 0.5
    a, b = first + 1, second + 1
    log_factor = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - (a + b) * math.log(2)
    c, d = 1.0, 1 / (1 - (a + b) / (a + 1) / 2)
    fraction = d
    for m in range(1, 100_000):
        even = m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m)) / 2
        odd = -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1)) / 2
        change = 1.0
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            change = c * d
            fraction *= change
        if abs(change - 1) < 1e-15:
            break
    return significant(math.exp(log_factor) * fraction / a)
