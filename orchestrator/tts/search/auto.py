"""One search for any budget, advised by the problems before it.

    advice ─┬─ mcts ─── perhaps a few samples ──► MCTS ─────────────────────────┬─► result
            ├─ rebase ─ rounds of REBASE, perhaps in turn with independent ones ┤
            └─ chains ─ rounds of independent chains ───────────────────────────┘

The search ends once its vote is decided (`Ending`), or once it has taken the tokens that it is
allowed and has a completion; samples count when the tree search takes them over. Earlier problems
of a run decide how it searches, how much scores weigh in the vote, and how many tokens it may take:
see `allocation`. It says in its result what it was advised and what came of it (`Decision`).

Samples are reused: where a tree search asks for a step that a sample has, it gets that step. (The
distribution is the same: a chain generated in one request consists of its steps in sequence.)
Chains that the tree search did not take over are `surplus`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any

from pydantic import Field

from .adaptive_vote import chance_of_reversal
from .advice import Advice, Agreement, Decision, EndedBy
from .base import SearchConfig
from .budget import Critiques
from .mcts import MctsConfig, MctsSearch
from .protocol import Generated, Guess, Score, Scored, Search, SearchResult, Work
from .rebase import RebaseConfig, RebaseSearch
from .sampling import SampleSearch, SampleSearchConfig
from .step_search import Candidate
from .thought import Completion, Fate, NodePath, SeedOf, Thought, significant
from .tree import Node, Tree, completions_so_far
from .votes import AnswerForm, AnswerOf, Votes

DOUBT = significant(0.05)
"""Probability of a reversal at which a vote is decided."""
ONE_VOTE = 4.0
"""Weight with which a single vote decides: P(p < 1/2) for p ~ Beta(5, 1) is 0.03."""
HIGH = 0.5
"""The least score with which the verifier takes a chain for right."""
COMPARED = 4
"""Chains of a problem that are compared with one another, at most: the first ones."""
UNANSWERED = 16
"""Completions without a vote after which the search ends: more would hardly have an answer."""
SOFTMAX_TEMPERATURE = 1.0
"""REBASE's, for verifiers that are often wrong: the authors' 0.2 discards too much then."""


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
        self, config: AutoConfig, advice: Advice, seed: SeedOf, answer_of: AnswerOf
    ) -> None:
        """`seed` maps a node to the seed of its sample, in every search."""
        self.config = config if config.temperature else config.model_copy(update={"n": 1})
        self.advice = advice
        self._seed = seed
        self._answer_of = answer_of
        self._ending = Ending(advice)
        self._samples = Tree()
        self._steps: dict[NodePath, tuple[Thought, ...]] = {}
        """The samples' steps, once they are complete."""
        self._sampled: tuple[Completion, ...] = ()
        """The samples that a tree search began with."""
        self._sampling = advice.method == "mcts" and advice.samples > 0
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
        if isinstance(result, Scored):
            self._ending.critiques.add(result)
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
        if advice.method == "mcts":
            tree = MctsConfig.model_validate(common | {"parallel": advice.parallel})
            return _Mcts(tree, self._seed, self._answer_of, self._ending)
        rounds = RebaseConfig.model_validate(
            common
            | {"n": min(advice.width, common["n"]), "softmax_temperature": SOFTMAX_TEMPERATURE}
        )
        return _Rounds(rounds, self.config.n, self._seed, self._answer_of, self._ending)

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
        while (work.whole or thoughts[-1].thinking) and (path := (*path, 0)) in self._steps:
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
        independent = self._independent(completions)
        high, low = agreements(independent, self._answer_of)
        alone, searched = self._compared(independent, completions, by)
        written, first = self.tree.tokens, self._ending.first_tokens
        tokens = written + self._ending.critiques.tokens
        if first is None and by == "n":  # it ended with the first completions
            first = tokens
        completions = tuple(_weighed(done, self.advice) for done in completions)
        length = self._mean_length(completions)
        if length and tokens > written:  # a chain costs what is written about it, too
            length = round(length * tokens / written)
        decision = Decision(self.advice, by, tokens, first, high, low, alone, searched, length)
        self._result = SearchResult(completions, self.tree, decision=decision)
        self._asks.clear()

    def _independent(self, completions: Sequence[Completion]) -> Sequence[Completion]:
        """The chains that no score has chosen, as far as they are comparable."""
        if self.advice.method == "mcts":
            return completions if self._sampling else self._sampled
        return [done for done in completions if done.node[0] < self.advice.chains]

    def _compared(
        self, independent: Sequence[Completion], completions: Sequence[Completion], by: EndedBy
    ) -> tuple[Agreement, Agreement]:
        """How far the first round agrees, with itself and with the second, REBASE's."""
        if self.advice.method != "rebase" or by == "limit":
            return (0, 0), (0, 0)
        first, second = self.advice.chains, self.advice.chains + self.advice.width
        alone = [self._answer_of(done.text) for done in independent]
        searched = [
            self._answer_of(done.text) for done in completions if first <= done.node[0] < second
        ]
        return _agreement(combinations(alone, 2)), _agreement(product(alone, searched))

    def _mean_length(self, completions: Sequence[Completion]) -> int | None:
        chains = [self.tree.chain(done.node) for done in completions]
        tokens = [len(node.thought.token_ids) for chain in chains for node in chain if node.thought]
        return round(sum(tokens) / len(chains)) if chains else None


@dataclass(slots=True)
class Ending:
    """The rule by which a search ends before it has n completions."""

    advice: Advice
    by: EndedBy = "n"
    first_tokens: int | None = None
    critiques: Critiques = field(default_factory=Critiques)
    """What the verifier wrote, which counts like what was generated."""

    def reached(self, first: float, second: float, tokens: int, completions: int) -> bool:
        """Whether to end with these votes for the first two answers, and so much generated.

        There must be a completion. The votes are those of `adaptive_vote`, each with a weight by
        which `votes` unanimous ones decide, approximately.
        """
        tokens += self.critiques.tokens
        if self.first_tokens is None:
            self.first_tokens = tokens
        weight = ONE_VOTE / self.advice.votes
        if chance_of_reversal(first * weight, second * weight) <= DOUBT:
            self.by = "vote"
        elif self.advice.allowance is not None and tokens >= self.advice.allowance:
            self.by = "allowance"
        elif not first and completions >= UNANSWERED:
            self.by = "no votes"
        return self.by != "n"


class _Mcts(MctsSearch):
    """MCTS until the ending is reached."""

    def __init__(
        self, config: MctsConfig, seed: SeedOf, answer_of: AnswerOf, ending: Ending
    ) -> None:
        self._votes = Votes(answer_of)
        self._ending = ending
        self._tokens = 0
        """Those of the tree, counted as they come: the ending is looked at in every wave."""
        self._counted = 0
        """Completions that have voted."""
        super().__init__(config, seed)

    def _grow(self, candidate: Candidate, result: Generated) -> None:
        super()._grow(candidate, result)
        grown = self.tree.chain(candidate.end.path)[candidate.start - 1 :]
        self._tokens += sum(len(node.thought.token_ids) for node in grown if node.thought)

    def _may_end(self) -> bool:
        for node in self._completed[self._counted :]:
            weight = vote_of(self._path_score(node), self._ending.advice)
            self._votes.add(self.tree.text(node.path), weight)
        self._counted = len(self._completed)
        votes = self._votes.first_and_second
        return self._counted > 0 and self._ending.reached(*votes, self._tokens, self._counted)


class _Rounds(RebaseSearch):
    """Rounds until the ending is reached, each of them a search of its own from the root.

    A round is some independent chains, or REBASE; with the method `rebase` and independent chains
    they take turns. Rounds are independent of one another, so what they vote for tells how sure the
    answer is, and a hard problem can get many.
    """

    def __init__(
        self, config: RebaseConfig, most: int, seed: SeedOf, answer_of: AnswerOf, ending: Ending
    ) -> None:
        """`config.n` are the chains of a round of REBASE, `most` those of all rounds."""
        self._votes = Votes(answer_of)
        self._ending = ending
        self._round = self._chains = 0
        self._most = most
        self._earlier: list[Node] = []
        """Completions of earlier rounds."""
        super().__init__(config, seed)

    def _open_root(self) -> None:
        """Begin the next round."""
        whole, size = self._next()
        paths = [(self._chains + child,) for child in range(size)]
        self._chains += size
        self._round += 1
        self._open(paths, whole=whole)

    def _next(self) -> tuple[bool, int]:
        """Whether the next round's chains are independent, and how many they are."""
        advice = self._ending.advice
        mixed = advice.chains > 0 and self._round % 2 == 0
        whole = advice.method == "chains" or mixed
        return whole, min(advice.chains, self._most) if whole else self.config.n

    def _finish(self, completed: Sequence[Node]) -> None:
        """A round is over."""
        self._earlier += completed
        for node in completed:
            weight = vote_of(self._path_score(node), self._ending.advice)
            self._votes.add(self.tree.text(node.path), weight)
        votes = self._votes.first_and_second
        ended = self._ending.reached(*votes, self.tree.tokens, len(self._earlier))
        if ended or self._chains + self._next()[1] > self._most:
            super()._finish(self._earlier)
            return
        self._completed = []
        self._open_root()


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
    return _agreement(combinations(high, 2)), _agreement(combinations(low, 2))


def _agreement(pairs: Iterable[tuple[AnswerForm | None, ...]]) -> Agreement:
    alike = [one is not None and one == other for one, other in pairs]
    return sum(alike), len(alike)
