"""One search for any budget, advised by the problems before it.

    advice ─┬─ mcts ─── perhaps a few samples ──► MCTS ───────────────┬─► result
            ├─ rebase ─ perhaps a few samples ──► REBASE, in rounds ──┤
            └─ chains ─ independent chains, in rounds ────────────────┘

The search ends once its vote is decided (`Ending`), or once it has taken the tokens that it is
allowed and has a completion. Earlier problems of a run decide how it searches, how much scores
weigh in the vote, and how many tokens it may take: see `allocation`. It says in its result what it
was advised and what came of it (`Decision`).

Samples are reused: where a tree search asks for a step that a sample has, it gets that step. (The
distribution is the same: a chain generated in one request consists of its steps in sequence.)
Chains that the tree search did not take over are `surplus`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from pydantic import Field

from .adaptive_vote import AdaptiveVoteConfig, AdaptiveVoteSearch, chance_of_reversal
from .advice import WIDTH, Advice, Agreement, Decision, EndedBy
from .candidates import Candidate
from .config import SearchConfig
from .early_stop import AnswerForm, AnswerOf, Votes
from .mcts import MctsConfig, MctsSearch
from .protocol import Expand, Generated, Guess, Score, Scored, Search, SearchResult, Work
from .rebase import RebaseConfig, RebaseSearch
from .sampling import SampleSearch, SampleSearchConfig
from .seeds import SeedOf
from .thought import Completion, Fate, NodePath, Thought, significant
from .tree import Node, Tree, completions_so_far

DOUBT = significant(0.05)
"""Probability of a reversal at which a vote is decided."""
ONE_VOTE = 4.0
"""Weight with which a single vote decides: P(p < 1/2) for p ~ Beta(5, 1) is 0.03."""
HIGH = 0.5
"""The least score with which the verifier takes a chain for right."""
COMPARED = 4
"""Chains of a problem that are compared with one another, at most: the first ones."""
SOFTMAX_TEMPERATURE = 1.0
"""REBASE's, for verifiers that are often wrong: the authors' 0.2 discards too much then."""


class AutoConfig(SearchConfig):
    """Parameters of the search for any budget, which is given as a limit."""

    TAKES_BUDGET = True

    n: int = Field(default=256, ge=1, le=100_000)
    """Most completions; searches end before that once their vote is decided."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return AutoSearch(self, Advice(), seed, answer_of)


class AutoSearch(Search):
    """Searches one problem as it is advised."""

    tree: Tree

    def __init__(
        self, config: AutoConfig, advice: Advice, seed: SeedOf, answer_of: AnswerOf
    ) -> None:
        """`seed` maps a node to the seed of its sample, in every search."""
        self.config = config
        self.advice = advice
        self._seed = seed
        self._answer_of = answer_of
        self._ending = Ending(advice)
        self._samples = Tree()
        self._steps: dict[NodePath, tuple[Thought, ...]] = {}
        """The samples' steps, once they are complete."""
        self._sampled: tuple[Completion, ...] = ()
        """The samples that a tree search began with."""
        self._sampling = advice.method != "chains" and advice.samples > 0
        self._asks: list[Work] = []
        self._unwanted: list[NodePath] = []
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
        self._search.tell(result)
        if self._sampling and (samples := self._search.result()):
            self._sampling = False
            self._sampled = samples.completions
            self._samples = samples.tree
            self._steps = {node.path: (node.thought,) for node in samples.tree if node.thought}
            self._begin(self._searcher())
        else:
            self._take_asks()

    def result(self) -> SearchResult | None:
        """The completions, best first; scores are what chains weigh in the vote."""
        return self._result

    def stop(self) -> SearchResult:
        """See Search; samples count like the chains that the tree search has completed."""
        if self._result is None:
            self._add_unused_samples()
            found = completions_so_far(self.tree, self.config.agg_strategy, self.config.n)
            self._end(found, "limit")
        assert self._result is not None
        return self._result

    def unwanted(self) -> list[NodePath]:
        """See Search."""
        nodes, self._unwanted = self._unwanted, []
        return nodes

    def foresee(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """See Search; the samples' steps are answered already."""
        return self._search.foresee({**answered, **self._steps}) if not self._result else iter(())

    def expandable(self) -> Container[NodePath]:
        """See Search."""
        return self._search.expandable() if not self._result else ()

    def _sampler(self) -> Search:
        common = _common(self.config) | {"n": min(self.advice.samples, self.config.n)}
        return SampleSearch(SampleSearchConfig.model_validate(common), self._seed)

    def _searcher(self) -> Search:
        common, advice = _common(self.config), self.advice
        if advice.method == "mcts":
            tree = MctsConfig.model_validate(common | {"parallel": advice.parallel})
            return _Mcts(tree, self._seed, self._answer_of, self._ending)
        if advice.method == "rebase":
            width = min(advice.width, self.config.n)
            rounds = RebaseConfig.model_validate(
                common | {"n": width, "softmax_temperature": SOFTMAX_TEMPERATURE}
            )
            most = self.config.n // width
            return _Rebase(rounds, most, self._seed, self._answer_of, self._ending)
        scored = advice.floor < 1 or advice.samples > 0
        chains = AdaptiveVoteConfig.model_validate(
            common | {"scored": scored, "batch": min(WIDTH, advice.width)}
        )
        return _Chains(chains, self._seed, self._answer_of, self._ending)

    def _begin(self, search: Search) -> None:
        self._search = search
        assert search.tree is not None
        self.tree = search.tree
        self._take_asks()

    def _take_asks(self) -> None:
        """Collect what the search wants now, and tell it at once what the samples hold of that."""
        while asks := self._search.ask():
            for work in asks:
                if known := self._known(work):
                    self._search.tell(known)
                else:
                    self._asks.append(work)
        for node in self._search.unwanted():
            left = [w for w in self._asks if isinstance(w, Expand) or w.node != node]
            if len(left) == len(self._asks):
                self._unwanted.append(node)  # it has been handed out
            self._asks = left
        if not self._sampling and (found := self._search.result()):
            self._add_unused_samples()
            self._end(found.completions, self._ending.by)

    def _known(self, work: Work) -> Generated | Scored | None:
        """The answer that the samples hold; what they take from a node is its child 0."""
        path = work.node
        if path not in self._steps:
            return None
        if isinstance(work, Score):
            score = self._samples[path].score
            return None if score is None else Scored(path, score)
        thoughts = list(self._steps[path])
        while work.whole and (path := (*path, 0)) in self._steps:
            thoughts += self._steps[path]
        return Generated(work.node, tuple(thoughts))

    def _add_unused_samples(self) -> None:
        """Add the samples that the tree search did not take over: they were paid for."""
        for sample in self._samples:
            if sample.path not in self.tree:
                node = self.tree.add(sample.path)
                node.thought, node.score = sample.thought, sample.score
                ends = sample.fate is Fate.COMPLETED
                node.fate = Fate.SURPLUS if ends else sample.fate

    def _end(self, completions: tuple[Completion, ...], by: EndedBy) -> None:
        in_tree = self.advice.method != "chains" and not self._sampling
        independent = self._sampled if in_tree else completions
        high, low = agreements(independent, self._answer_of)
        tokens, first = self.tree.tokens, self._ending.first_tokens
        if first is None and by == "n":  # it ended with the first completions
            first = tokens
        completions = tuple(_weighed(done, self.advice) for done in completions)
        decision = Decision(self.advice, by, tokens, first, high, low)
        self._result = SearchResult(completions, self.tree, decision=decision)
        self._asks.clear()
        self._unwanted.clear()


@dataclass(slots=True)
class Ending:
    """The rule by which a search ends before it has n completions."""

    advice: Advice
    by: EndedBy = "n"
    first_tokens: int | None = None

    def reached(self, first: float, second: float, tokens: int) -> bool:
        """Whether to end with these votes for the first two answers, and so many tokens taken.

        There must be a completion. The votes are those of `adaptive_vote`, each with a weight by
        which `votes` unanimous ones decide, approximately.
        """
        if self.first_tokens is None:
            self.first_tokens = tokens
        weight = ONE_VOTE / self.advice.votes
        if chance_of_reversal(first * weight, second * weight) <= DOUBT:
            self.by = "vote"
        elif self.advice.allowance is not None and tokens >= self.advice.allowance:
            self.by = "allowance"
        return self.by != "n"


class _AdvisedVotes(Votes):
    """Votes that weigh as is advised."""

    def __init__(self, answer_of: AnswerOf, advice: Advice) -> None:
        super().__init__(answer_of)
        self._advice = advice

    def add(self, text: str, weight: float) -> AnswerForm | None:
        return super().add(text, vote_of(weight, self._advice))


class _Mcts(MctsSearch):
    """MCTS until the ending is reached."""

    def __init__(
        self, config: MctsConfig, seed: SeedOf, answer_of: AnswerOf, ending: Ending
    ) -> None:
        self._votes = _AdvisedVotes(answer_of, ending.advice)
        self._ending = ending
        self._tokens = 0
        """Those of the tree, counted as they come: the ending is looked at in every wave."""
        super().__init__(config, seed, answer_of)

    def _take_steps(
        self, candidate: Candidate, path: NodePath, thoughts: Iterable[Thought]
    ) -> None:
        taken = list(thoughts)
        self._tokens += sum(len(thought.token_ids) for thought in taken)
        super()._take_steps(candidate, path, taken)

    def _count(self, completed: Iterable[Node]) -> None:
        for node in completed:
            self._votes.add(self.tree.text(node.path), self._path_score(node))

    @property
    def _vote_is_decided(self) -> bool:
        votes = self._votes.first_and_second
        return bool(self._completed) and self._ending.reached(*votes, self._tokens)


class _Rebase(RebaseSearch):
    """REBASE in rounds until the ending is reached; a round is a search of its own from the root.

    Rounds are independent of one another, as chains are, so what they vote for tells how sure the
    answer is, and a hard problem can get many.
    """

    def __init__(
        self, config: RebaseConfig, most: int, seed: SeedOf, answer_of: AnswerOf, ending: Ending
    ) -> None:
        """`config.n` are the chains of a round, `most` the rounds."""
        self._votes = _AdvisedVotes(answer_of, ending.advice)
        self._ending = ending
        self._rounds, self._most = 1, most
        self._earlier: list[Node] = []
        """Completions of earlier rounds."""
        super().__init__(config, seed)

    def _finish(self, completed: Sequence[Node]) -> None:
        """A round is over."""
        self._earlier += completed
        for node in completed:
            self._votes.add(self.tree.text(node.path), self._path_score(node))
        votes = self._votes.first_and_second
        if self._ending.reached(*votes, self.tree.tokens) or self._rounds == self._most:
            super()._finish(self._earlier)
            return
        self._completed = []
        first = self._rounds * self.config.n
        self._rounds += 1
        self._open((first + child,) for child in range(self.config.n))


class _Chains(AdaptiveVoteSearch):
    """Chains in rounds until the ending is reached."""

    def __init__(
        self, config: AdaptiveVoteConfig, seed: SeedOf, answer_of: AnswerOf, ending: Ending
    ) -> None:
        self._ending = ending
        super().__init__(config, seed, answer_of)
        self._votes = _AdvisedVotes(answer_of, ending.advice)

    @property
    def _decided(self) -> bool:
        votes = self._votes.first_and_second
        return bool(self._voted) and self._ending.reached(*votes, self.tree.tokens)


def vote_of(score: float, advice: Advice) -> float:
    """What a completion with that score weighs in the vote."""
    return significant(advice.floor + (1 - advice.floor) * score)


def _weighed(done: Completion, advice: Advice) -> Completion:
    return done if done.score is None else replace(done, score=vote_of(done.score, advice))


def agreements(chains: Sequence[Completion], answer_of: AnswerOf) -> tuple[Agreement, Agreement]:
    """How far chains with high scores agree with one another; then those with low ones.

    A verifier that is right about chains with high scores says so by this alone: right answers
    agree.
    """
    high: list[AnswerForm | None] = []
    low: list[AnswerForm | None] = []
    for chain in sorted(chains, key=lambda done: done.node)[:COMPARED]:
        if chain.score is not None:
            (high if chain.score >= HIGH else low).append(answer_of(chain.text))
    return _agreement(high), _agreement(low)


def _agreement(answers: Sequence[AnswerForm | None]) -> Agreement:
    pairs = list(combinations(answers, 2))
    return sum(a is not None and a == b for a, b in pairs), len(pairs)


def _common(config: SearchConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in SearchConfig.model_fields}
