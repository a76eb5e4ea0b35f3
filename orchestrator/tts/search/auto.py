"""One search for any budget, by the method that the verifier deserves.

             ┌─► MCTS, one simulation after the other ──────┐
    advice ──┼─► REBASE, one round after the other ─────────┼──► result
             └─► independent chains, one round after another┘

The search ends once its vote is decided (`Ending`), or once it has taken the tokens that it is
allowed and has a completion. Every chain that is complete votes with its weight: its probability of
being right where the verifier was measured, otherwise its score. How it searches, and how many
tokens it may take, is advised by `allocation`. It says in its result what it was advised and what
came of it (`Decision`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from .allocation import Advice, Decision, EndedBy
from .budget import Critiques
from .calibration import Calibration
from .mcts import MctsConfig, MctsSearch
from .protocol import Search, SearchConfig, SearchResult
from .rebase import RebaseConfig, RebaseSearch, Rounds
from .seeds import SeedOf
from .thought import Completion, Generated, Scored, Work, significant
from .tree import Tree
from .votes import AnswerOf, Votes, chance_of_reversal

DOUBT = significant(0.05)
"""Probability of a reversal at which a vote is decided."""
ONE_VOTE = 5.0
"""A single vote that is worth w decides if P(p < 1/2) <= DOUBT for p ~ Beta(ONE_VOTE w + 1, 1)."""
UNANSWERED = 16
"""Completions without a vote after which the search ends: more would hardly have an answer."""


class AutoConfig(SearchConfig):
    """Parameters of the search for any budget, which is given as a limit."""

    TAKES_BUDGET = True

    n: int = Field(default=256, ge=1, le=100_000)
    """Most completions; searches end before that once their vote is decided. At temperature 0 all
    would be the same, and there is one."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return AutoSearch(self, Advice(), seed, answer_of)


class AutoSearch(Search):
    """Searches one problem as it is advised."""

    tree: Tree

    def __init__(
        self,
        config: AutoConfig,
        advice: Advice,
        seed: SeedOf,
        answer_of: AnswerOf,
        calibration: Calibration | None = None,
    ) -> None:
        """`seed` maps a node to the seed of its sample."""
        self.config = config if config.temperature else config.model_copy(update={"n": 1})
        self.advice = advice
        self._ending = Ending(advice, Votes(answer_of))
        self._search = self._searcher(seed)
        self.hints = self._search.hints
        self.tree = self._search.tree
        self.tree.calibration = calibration
        self._result: SearchResult | None = None

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""
        return [] if self._result else self._search.ask()

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones are ignored."""
        if self._result:
            return
        node = self.tree.get(result.node)
        if isinstance(result, Scored) and node and node.thought and node.score is None:
            self._ending.critiques.add(result)
        self._search.tell(result)
        if outcome := self._search.result():
            self._end(outcome.completions, self._ending.by)

    def result(self) -> SearchResult | None:
        """The completions, best first."""
        return self._result

    def stop(self) -> SearchResult:
        """See Search."""
        if self._result is None:
            self._end(self._search.stop().completions, "limit")
        assert self._result is not None
        return self._result

    def _searcher(self, seed: SeedOf) -> MctsSearch | RebaseSearch:
        # however many steps a problem takes, its chains come to their ends
        common = {name: getattr(self.config, name) for name in SearchConfig.model_fields}
        common["finish"] = "eos"
        advice, most = self.advice, self.config.n
        if advice.method == "mcts":
            tree = common | {"n": most, "parallel": advice.parallel}
            return MctsSearch(MctsConfig.model_validate(tree), seed, self._ending.reached)
        rounds = Rounds(self._ending.reached, most, whole=advice.method == "vote")
        n = min(advice.width, most)
        return RebaseSearch(RebaseConfig.model_validate(common | {"n": n}), seed, rounds)

    def _end(self, completions: tuple[Completion, ...], by: EndedBy) -> None:
        tokens = self.tree.tokens + self._ending.critiques.tokens
        length = self._mean_length(completions)
        if length and tokens > self.tree.tokens:  # a chain costs what is written about it, too
            length = round(length * tokens / self.tree.tokens)
        first = self._ending.first_tokens
        if first is None and by == "n":  # it ended with the first completions
            first = tokens
        decision = Decision(self.advice, by, tokens, first, length)
        self._result = SearchResult(completions, self.tree, decision=decision)

    def _mean_length(self, completions: Sequence[Completion]) -> int | None:
        chains = [self.tree.chain(each.node) for each in completions]
        tokens = [len(node.thought.token_ids) for chain in chains for node in chain if node.thought]
        return round(sum(tokens) / len(chains)) if chains else None


class Ending:
    """The rule by which a search ends before it has n completions."""

    def __init__(self, advice: Advice, votes: Votes) -> None:
        self.by: EndedBy = "n"
        self.first_tokens: int | None = None
        self.critiques = Critiques()
        """What the verifier wrote, which counts like what was generated."""
        self.advice = advice
        self._votes = votes
        self._voters = 0
        """Completions so far."""

    def reached(self, completions: Sequence[Completion], tokens: int, full: bool = False) -> bool:
        """Whether to end now that these are complete, too, and the tree has so many tokens.

        There must be a completion. The votes are those of `adaptive-vote`, each with a weight by
        which `votes` unanimous ones decide, approximately.
        """
        for completion in completions:
            self._votes.add(completion.text, completion.weight)
        self._voters += len(completions)
        if not self._voters:
            return False
        tokens += self.critiques.tokens
        if self.first_tokens is None:
            self.first_tokens = tokens
        weight = ONE_VOTE / self.advice.votes
        first, second = self._votes.first_and_second
        if chance_of_reversal(first * weight, second * weight) <= DOUBT:
            self.by = "vote"
        elif self.advice.allowance is not None and tokens >= self.advice.allowance:
            self.by = "allowance"
        elif not first and self._voters >= UNANSWERED:
            self.by = "no votes"
        return full or self.by != "n"
