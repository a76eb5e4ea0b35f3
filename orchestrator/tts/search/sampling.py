"""Independent samples: greedy, majority vote, best-of-n and weighted best-of-n.

    root ─┬─ 0 ─ 0.0 ─ 0.0.0 ...   n whole chains, each from one request; every step is a node
          └─ 1 ─ 1.0 ...

The four strategies grow the same tree; they differ in n, in whether the chains are scored, and in
how the answer is chosen.

Adaptive sampling takes the same chains in rounds, until the vote is probably decided.

    round 1: 0 1 2 3      5, 5, 7, 5     3 to 1: 0.81, go on
    round 2: 4 5 6 7      5, 5, 5, 2     6 to 1: 0.96, decided: 8 of n chains were enough

After each round the two answers with the most votes are compared (`votes`), and the search ends
once the leader is probably the majority's choice. After Aggarwal et al., "Let's sample step by
step: adaptive-consistency for efficient reasoning and coding with LLMs" (arXiv 2305.11860), section
3.2 and the authors' `BetaStoppingCriteria`, which decides after every sample instead of every
round. In the weighted variant a vote counts its chain's score. A round is decided when it is
complete, so timing has no say in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from .protocol import Search, SearchConfig
from .seeds import SeedOf
from .step_search import Candidate, Pool, StepSearch
from .thought import Fate, NodePath, Stop, Thought, significant
from .tree import Node, Rank
from .votes import AnswerOf, Votes, chance_of_reversal


class SampleSearchConfig(SearchConfig):
    """Parameters of the sampling strategies."""

    scored: bool = True
    """Whether the verifier scores the chains."""

    @property
    def scores_steps(self) -> bool:
        """See SearchConfig: the score of a whole chain is that of its last step, or of all."""
        return self.scored and self.agg_strategy != "last"

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return SampleSearch(self, seed)


class SampleSearch(StepSearch[SampleSearchConfig]):
    """Decides whole chains in one pool; a strategy that samples in rounds defines `_more`."""

    def __init__(self, config: SampleSearchConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample."""
        super().__init__(config, seed)
        self._ends: list[Node] = []
        """The last steps of the chains so far, in the order of their paths."""
        self._go_on()

    def _decide(self, pool: Pool) -> None:
        self._ends += pool.ends
        self._go_on()

    def _go_on(self) -> None:
        """Ask for further chains, or end the search."""
        first = len(self._ends)
        if more := self._more():
            self._open((chain,) for chain in range(first, first + more))
        else:
            self._finish(self._ends)

    def _more(self) -> int:
        """How many chains to ask for now that all those asked for are complete; 0 ends it."""
        return self.config.n - len(self._ends)

    def _write(self, candidate: Candidate, thoughts: Sequence[Thought]) -> None:
        super()._write(candidate, thoughts)
        cut = thoughts[-1].stop is Stop.CUT
        candidate.end.fate = Fate.PRUNED if cut else Fate.COMPLETED

    def _nodes_to_score(self, candidate: Candidate) -> list[NodePath]:
        return super()._nodes_to_score(candidate) if self.config.scored else []

    def _rank(self, node: Node) -> Rank:
        return super()._rank(node) if self.config.scored else (0.0, 0.0, node.path)


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
