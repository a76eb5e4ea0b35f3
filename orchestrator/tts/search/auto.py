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

from collections.abc import Container, Iterator, Mapping, Sequence

from pydantic import Field

from .adaptive_vote import chance_of_reversal
from .advice import Advice, Decision, EndedBy
from .base import SearchConfig
from .budget import Critiques
from .calibration import Calibration
from .mcts import MctsConfig, MctsSearch, SeenValues
from .protocol import Generated, Guess, Scored, Search, SearchResult, Work
from .rebase import RebaseConfig, RebaseSearch
from .step_search import Candidate, Pool
from .thought import Completion, NodePath, SeedOf, Thought, significant
from .tree import Node, Tree
from .votes import AnswerOf, Votes

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
        if ended := self._search.result():
            self._end(ended.completions, self._ending.by)

    def result(self) -> SearchResult | None:
        """The completions, best first."""
        return self._result

    def stop(self) -> SearchResult:
        """See Search."""
        if self._result is None:
            self._end(self._search.stop().completions, "limit")
        assert self._result is not None
        return self._result

    def foresee(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """See Search."""
        return self._search.foresee(answered) if not self._result else iter(())

    def expandable(self) -> Container[NodePath]:
        """See Search."""
        return self._search.expandable() if not self._result else ()

    def _searcher(self, seed: SeedOf) -> _Mcts | _Rounds:
        # however many steps a problem takes, its chains come to their ends
        common = {name: getattr(self.config, name) for name in SearchConfig.model_fields}
        common["finish"] = "eos"
        advice, most = self.advice, self.config.n
        if advice.method == "mcts":
            tree = common | {"n": most, "parallel": advice.parallel}
            return _Mcts(MctsConfig.model_validate(tree), seed, self._ending)
        rounds = RebaseConfig.model_validate(common | {"n": min(advice.width, most)})
        return _Rounds(rounds, most, seed, self._ending, whole=advice.method == "vote")

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
        chains = [self.tree.chain(done.node) for done in completions]
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
        self._voted: set[NodePath] = set()

    def reached(self, completions: Sequence[Completion], tokens: int, full: bool = False) -> bool:
        """Whether to end now that these are complete, too, and the tree search wrote so much.

        There must be a completion. The votes are those of `adaptive_vote`, each with a weight by
        which `votes` unanimous ones decide, approximately.
        """
        for done in completions:
            if done.node not in self._voted:
                self._voted.add(done.node)
                self._votes.add(done.text, done.weight)
        if not self._voted:
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
        elif not first and len(self._voted) >= UNANSWERED:
            self.by = "no votes"
        return full or self.by != "n"


class _Mcts(MctsSearch):
    """MCTS until the ending is reached."""

    def __init__(self, config: MctsConfig, seed: SeedOf, ending: Ending) -> None:
        self._ending = ending
        self._tokens = self._counted = 0
        """Tokens of the tree, and completions that have voted: it is looked at in every wave."""
        super().__init__(config, seed)

    def _grow(self, candidate: Candidate, result: Generated) -> None:
        super()._grow(candidate, result)
        grown = self.tree.chain(candidate.end.path)[candidate.start - 1 :]
        self._tokens += sum(len(node.thought.token_ids) for node in grown if node.thought)

    def _may_end(self) -> bool:
        new = self._completed[self._counted :]
        self._counted = len(self._completed)
        return self._ending.reached(list(map(self._completion, new)), self._tokens)


class _Rounds(RebaseSearch):
    """Rounds of REBASE until the ending is reached, each of them a search of its own.

    Rounds are independent of one another, so what they vote for tells how sure the answer is, and a
    hard problem can get many. With `whole`, a round is independent chains.
    """

    def __init__(
        self, config: RebaseConfig, most: int, seed: SeedOf, ending: Ending, *, whole: bool
    ) -> None:
        """`config.n` are the chains of a round, `most` those of all rounds."""
        self._ending = ending
        self._whole = whole
        self._chains = 0
        self._most = most
        self._earlier: list[Node] = []
        """Completions of earlier rounds."""
        self._values = SeenValues()
        super().__init__(config, seed)

    def _decide(self, pool: Pool) -> None:
        for candidate in pool.candidates:
            self._values.extend(self._path_score(candidate.end))
        super()._decide(pool)

    def _shares(self, scores: Sequence[float]) -> list[int]:
        """As in REBASE, with values normalised between the least and the most seen in the tree."""
        return super()._shares([self._values.normalised(score) for score in scores])

    def _open_root(self) -> None:
        """Begin the next round."""
        first = self._chains
        self._chains += self.config.n
        self._open(((child,) for child in range(first, self._chains)), whole=self._whole)

    def _finish(self, completed: Sequence[Node]) -> None:
        """A round is over."""
        self._earlier += completed
        ends = list(map(self._completion, completed))
        full = self._chains + self.config.n > self._most
        if self._ending.reached(ends, self.tree.tokens, full):
            super()._finish(self._earlier)
        else:
            self._completed = []
            self._open_root()
