"""One search for any budget, advised by the problems before it.

    advice ──► perhaps a few samples ─┬─► MCTS, one simulation after the other ─┬─► result
                                      └─► REBASE, one round after the other ────┘

The search ends once its vote is decided (`Ending`), or once it has taken the tokens that it is
allowed and has a completion. Every chain that is complete votes, with what its score is worth.
Earlier problems of a run decide how it searches, and how many tokens it may take: see `allocation`.
It says in its result what it was advised and what came of it (`Decision`).

Samples are reused: where the tree search asks for a step that a sample has, it gets that step. (The
distribution is the same: a chain generated in one request consists of its steps in sequence.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pydantic import Field

from .adaptive_vote import chance_of_reversal
from .advice import Advice, Decision, EndedBy
from .base import SearchConfig
from .budget import Critiques
from .mcts import MctsConfig, MctsSearch
from .protocol import Generated, Guess, Score, Scored, Search, SearchResult, Work
from .rebase import RebaseConfig, RebaseSearch
from .sampling import SampleSearch, SampleSearchConfig
from .step_search import Candidate
from .thought import Completion, Fate, NodePath, SeedOf, Thought, significant
from .tree import Node, Tree, completions_so_far
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
        worth: Callable[[float], float] | None = None,
    ) -> None:
        """`seed` maps a node to the seed of its sample; `worth` is what scores are worth."""
        self.config = config if config.temperature else config.model_copy(update={"n": 1})
        self.advice = advice
        self._seed = seed
        self._worth = worth
        self._ending = Ending(advice, Votes(answer_of))
        self._samples = Tree()
        self._steps: dict[NodePath, tuple[Thought, ...]] = {}
        """Those of the samples, once they are complete: foresight asks for them again and again."""
        self._sampled: dict[NodePath, Completion] = {}
        """The samples that are complete, by the ends of their chains."""
        self._sampling = advice.samples > 0
        self._asks: list[Work] = []
        self._result: SearchResult | None = None
        self._begin(self._sampler() if self._sampling else self._searcher())

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""
        asks, self._asks = self._asks, []
        return asks

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones are ignored."""
        if self._result:
            return
        node = self.tree.get(result.node)
        if isinstance(result, Scored) and node and node.thought and node.score is None:
            self._ending.critiques.add(result)
        self._search.tell(result)
        if self._sampling and (samples := self._search.result()):
            self._sampling = False
            self._samples = samples.tree
            self._steps = {node.path: (node.thought,) for node in samples.tree if node.thought}
            self._sampled = {done.node: done for done in samples.completions}
            self._ending.sampled = samples.tree.tokens
            if self._ending.reached(samples.completions, 0, len(self._sampled) >= self.config.n):
                self._end(samples.completions, self._ending.by)
            else:
                self._begin(self._searcher())
        else:
            self._take_asks()

    def result(self) -> SearchResult | None:
        """The completions, best first; scores are what chains weigh in the vote."""
        return self._result

    def stop(self) -> SearchResult:
        """See Search; samples count like the chains that the tree search has completed."""
        if self._result is None:
            self._add_samples()
            found = completions_so_far(self.tree, self.config.agg_strategy, self.config.n)
            self._end(found, "limit")
        assert self._result is not None
        return self._result

    def foresee(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """See Search; the samples' steps are answered already."""
        return self._search.foresee({**answered, **self._steps}) if not self._result else iter(())

    def expandable(self) -> Container[NodePath]:
        """See Search."""
        return self._search.expandable() if not self._result else ()

    def _sampler(self) -> Search:
        common = self._common() | {"n": min(self.advice.samples, self.config.n)}
        return SampleSearch(SampleSearchConfig.model_validate(common), self._seed)

    def _common(self) -> dict[str, Any]:
        return {name: getattr(self.config, name) for name in SearchConfig.model_fields}

    def _searcher(self) -> Search:
        # however many steps a problem takes, its chains come to their ends
        common, advice = self._common() | {"finish": "eos"}, self.advice
        most = max(1, self.config.n - len(self._sampled))
        if advice.method == "mcts":
            tree = common | {"n": most, "parallel": advice.parallel}
            return _Mcts(MctsConfig.model_validate(tree), self._seed, self._ending)
        rounds = RebaseConfig.model_validate(common | {"n": min(advice.width, most)})
        return _Rounds(rounds, most, self._seed, self._ending)

    def _begin(self, search: Search) -> None:
        self._search = search
        assert search.tree is not None
        self.tree = search.tree
        self.tree.worth = self._worth
        self._take_asks()

    def _take_asks(self) -> None:
        """Collect what the search wants now, and tell it at once what the samples hold of that."""
        while asks := self._search.ask():
            for work in asks:
                if known := self._known(work):
                    self._search.tell(known)
                else:
                    self._asks.append(work)
        if not self._sampling and (found := self._search.result()):
            self._add_samples()
            completed = {done.node: done for done in found.completions}
            more = [done for node, done in self._sampled.items() if node not in completed]
            for done in more:
                self.tree[done.node].fate = Fate.COMPLETED
            how = self.config.agg_strategy
            ranked = sorted(
                [*found.completions, *more], key=lambda done: self.tree.rank(done.node, how)
            )
            self._end(tuple(ranked), self._ending.by)

    def _known(self, work: Work) -> Generated | Scored | None:
        """The answer that the samples hold; what they take from a node is its child 0."""
        node = self._samples.get(work.node)
        if node is None or node.thought is None:
            return None
        if isinstance(work, Score):
            return None if node.score is None else Scored(work.node, node.score)
        thoughts, path = [node.thought], work.node
        while work.whole or thoughts[-1].thinking:
            path = (*path, 0)
            node = self._samples.get(path)
            if node is None or node.thought is None:
                break
            thoughts.append(node.thought)
        self._ending.sampled -= sum(len(thought.token_ids) for thought in thoughts)
        return Generated(work.node, tuple(thoughts))

    def _add_samples(self) -> None:
        """Add the samples that the tree search did not take over."""
        for sample in self._samples:
            if sample.path not in self.tree:
                node = self.tree.add(sample.path)
                node.thought, node.score, node.fate = sample.thought, sample.score, sample.fate

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
        self._asks.clear()

    def _mean_length(self, completions: Sequence[Completion]) -> int | None:
        chains = [self.tree.chain(done.node) for done in completions]
        tokens = [len(node.thought.token_ids) for chain in chains for node in chain if node.thought]
        return round(sum(tokens) / len(chains)) if chains else None


class Ending:
    """The rule by which a search ends before it has n completions."""

    def __init__(self, advice: Advice, votes: Votes) -> None:
        self.by: EndedBy = "n"
        self.first_tokens: int | None = None
        self.sampled = 0
        """Tokens of the samples that the tree search has not taken over."""
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
                self._votes.add(done.text, done.score or 0.0)
        if not self._voted:
            return False
        tokens += self.sampled + self.critiques.tokens
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
    hard problem can get many.
    """

    def __init__(self, config: RebaseConfig, most: int, seed: SeedOf, ending: Ending) -> None:
        """`config.n` are the chains of a round, `most` those of all rounds."""
        self._ending = ending
        self._chains = 0
        self._most = most
        self._earlier: list[Node] = []
        """Completions of earlier rounds."""
        super().__init__(config, seed)

    def _shares(self, scores: Sequence[float]) -> list[int]:
        """Each candidate's share of the children, as much as it is worth, to whole numbers.

        Where none is worth anything, the shares are equal.
        """
        scores = scores if any(scores) else [1.0] * len(scores)
        children, total = self.config.n - len(self._completed), math.fsum(scores) or 1.0
        ends = [
            round(significant(children * math.fsum(scores[:place]) / total))
            for place in range(len(scores) + 1)
        ]
        return [end - begin for begin, end in pairwise(ends)]

    def _open_root(self) -> None:
        """Begin the next round."""
        first = self._chains
        self._chains += self.config.n
        self._open((child,) for child in range(first, self._chains))

    def _finish(self, completed: Sequence[Node]) -> None:
        """A round is over."""
        self._earlier += completed
        new, full = (
            list(map(self._completion, completed)),
            self._chains + self.config.n > self._most,
        )
        if self._ending.reached(new, self.tree.tokens, full):
            super()._finish(self._earlier)
        else:
            self._completed = []
            self._open_root()
