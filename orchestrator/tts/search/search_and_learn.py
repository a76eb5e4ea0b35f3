"""Searches that follow search-and-learn's code exactly, for comparisons with it.

https://github.com/huggingface/search-and-learn: `_beam_search`, `_dvts`, `best_of_n` and
`aggregate_scores`. Beams are a list whose order matters: completions come out in that order,
the kept beams are repeated in it, and of equal scores beam search keeps the last and DVTS the
first. How their answers are read and voted on is in `tts.strategies.strategy`.

Its verifier splits a text at the delimiter, so a step that ends in it leaves an empty last piece,
which is scored as a turn of its own. Here that piece is a node below the step (child -1, fate
`lookahead`) with an empty text; `search-and-learn-stripped` leaves it out.

The parameters are those of this project's own searches and `semantics`, which chooses the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from pydantic import model_validator

from . import beam_search, dvts, sampling
from .candidates import Candidate, Pool
from .config import SearchConfig, StepConfig
from .early_stop import AnswerOf
from .protocol import Score, Search
from .seeds import SeedOf
from .step_search import StepSearch
from .thought import Completion, Fate, NodePath, Stop, Thought, aggregate
from .tree import Node, Rank

Semantics = Literal["native", "search-and-learn", "search-and-learn-stripped"]
"""Whose rules decide: this project's, or search-and-learn's with empty last pieces scored, or with
them stripped."""

EMPTY_PIECE = Thought((), "", Stop.STEP)

Config = TypeVar("Config", bound=StepConfig)


class SemanticsConfig(SearchConfig):
    """Parameters of a search that knows both this project's rules and search-and-learn's."""

    LATER = SearchConfig.LATER | {"semantics"}

    semantics: Semantics = "native"
    """Whose rules decide."""

    @property
    def literal(self) -> bool:
        """Whether search-and-learn's rules decide."""
        return self.semantics != "native"


class _StepSemantics(SemanticsConfig):
    """Parameters of a tree search that knows both."""

    @model_validator(mode="before")
    @classmethod
    def _ends_by_eos(cls, values: Any) -> Any:
        """The last iteration of search-and-learn generates to the end of the sequence."""
        if isinstance(values, dict) and values.get("semantics", "native") != "native":
            return {"finish": "eos", **values}
        return values


class BeamSearchConfig(_StepSemantics, beam_search.BeamSearchConfig):
    """Parameters of beam search. `n` is also the number of candidates per iteration."""

    def _require_consistent(self) -> None:
        if not self.literal:
            super()._require_consistent()
            return
        _require_literal(self, early_stop=self.early_stop, agree=self.agree)
        if self.beam_width > self.n:
            raise ValueError(f"beam_width ({self.beam_width}) is above n ({self.n})")

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return (
            LiteralBeamSearch(self, seed) if self.literal else super().new_search(seed, answer_of)
        )


class DvtsConfig(_StepSemantics, dvts.DvtsConfig):
    """Parameters of diverse verifier tree search."""

    def _require_consistent(self) -> None:
        super()._require_consistent()
        if self.literal:
            _require_literal(self, early_stop=self.early_stop, agree=self.agree)

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return LiteralDvts(self, seed) if self.literal else super().new_search(seed, answer_of)


class SampleSearchConfig(SemanticsConfig, sampling.SampleSearchConfig):
    """Parameters of the sampling strategies. By search-and-learn's rules nothing is aggregated."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        if self.literal:
            return LiteralSamples(self, seed, answer_of)
        return super().new_search(seed, answer_of)


def _require_literal(config: StepConfig, **off: object) -> None:
    """Raise ValueError for a parameter that search-and-learn's rules do not have.

    `off` are further ones, which must be false.
    """
    fixed = {"finish": "eos", "granularity": 1, "lookahead": 0}
    for name, value in fixed.items():
        if getattr(config, name) != value:
            raise ValueError(f"search-and-learn's semantics need {name}={value}")
    if config.agg_strategy == "mean":
        raise ValueError("search-and-learn's semantics have no agg_strategy mean")
    for name, value in off.items():
        if value:
            raise ValueError(f"{name} is not among search-and-learn's semantics")


class LiteralSamples(sampling.SampleSearch):
    """`best_of_n`: chains in the order of their list, each with the score of its last piece."""

    def __init__(self, config: SampleSearchConfig, seed: SeedOf, answer_of: AnswerOf) -> None:
        """See SampleSearch."""
        super().__init__(config, seed, answer_of)
        self._scores_empty_piece = config.semantics == "search-and-learn"

    def _last_score(self, ask: Score) -> Score:
        empty = len(ask.node) > 1 and not _text(self.tree[ask.node])
        return replace(ask, own_turn=self._scores_empty_piece and empty)

    def _rank(self, leaves: list[NodePath]) -> None:
        """Leave the chains in the order of their list."""

    @property
    def _scores_last_only(self) -> bool:
        return True


class LiteralSearch(StepSearch[Config]):
    """Rules that both tree searches share: when a chain has ended, and which steps are scored."""

    def __init__(self, config: Config, seed: SeedOf, semantics: Semantics) -> None:
        super().__init__(config, seed)
        self._scores_empty_piece = semantics == "search-and-learn"

    def _is_active(self, pool: Pool, node: Node) -> bool:
        thought = node.thought
        return not pool.last and thought is not None and thought.stop is Stop.STEP

    def _ask_scores(self, candidate: Candidate) -> None:
        """Ask for the score of the last piece, or where the aggregation needs it of every one."""
        path, group = candidate.end.path, candidate.group
        own = range(candidate.start, len(path) + 1)
        asks = [Score(path[:depth], group, completes=False) for depth in own]
        thought = candidate.end.thought
        if self._scores_empty_piece and thought:
            if thought.stop is Stop.STEP:
                candidate.tip = self.tree.add((*path, -1))
                candidate.tip.thought, candidate.tip.fate = EMPTY_PIECE, Fate.LOOKAHEAD
                asks.append(Score(candidate.tip.path, group, completes=False, own_turn=True))
            elif not thought.text and len(path) > 1:
                asks[-1] = replace(asks[-1], own_turn=True)
        if self.config.agg_strategy == "last":
            asks = asks[-1:]
        for ask in asks:
            self._awaiting_score[ask.node] = candidate
        self._asks += asks
        candidate.unscored = len(asks)

    def _path_score(self, node: Node) -> float:
        return aggregate(self._scores(node), self.config.agg_strategy)

    def _scores(self, node: Node) -> list[float]:
        """The scores of the pieces of a chain, the empty last one among them if it counts."""
        chain = self.tree.chain(node.path)
        if self.config.agg_strategy == "last":
            chain = chain[-1:]
        elif piece := self.tree.get((*node.path, -1)):
            chain.append(piece)
        elif not self._scores_empty_piece and len(chain) > 1 and not _text(chain[-1]):
            chain.pop()
        return [step.score for step in chain if step.score is not None]

    def _rank(self, node: Node) -> Rank:
        return -self._path_score(node), 0.0, node.path

    def _finish_as_listed(self, completed: Sequence[Node]) -> None:
        """The search is over; a completion weighs what its last piece scores."""
        for node in completed:
            node.fate = Fate.COMPLETED
        self._end(
            tuple(
                Completion(node.path, self.tree.text(node.path), self._scores(node)[-1])
                for node in completed
            )
        )


class LiteralBeamSearch(LiteralSearch[BeamSearchConfig]):
    """`_beam_search`: one list of n beams."""

    def __init__(self, config: BeamSearchConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample."""
        super().__init__(config, seed, config.semantics)
        self._completed: list[Node] = []
        self._open((child,) for child in range(config.n))

    def _decide(self, pool: Pool) -> None:
        config = self.config
        active = [candidate.end for candidate in pool.candidates if candidate.active]
        self._completed += [each.end for each in pool.candidates if not each.active]
        for node in active:
            node.fate = Fate.PRUNED
        if active and (config.sort_completed or len(self._completed) < config.n):
            kept = self._best(active)
            for node in kept:
                node.fate = Fate.EXPANDED
            children = range(config.n)
            starts = [(*kept[i % len(kept)].path, i // len(kept)) for i in children]
            self._open(starts, after=pool)
            return
        if config.sort_completed:
            self._completed.sort(key=self._path_score, reverse=True)
        for node in self._completed[config.n :]:
            node.fate = Fate.SURPLUS
        self._finish_as_listed(self._completed[: config.n])

    def _best(self, active: list[Node]) -> list[Node]:
        """The beams with the best scores, in the order of the list; of equal ones the later."""
        if self.config.filter_duplicates:
            first = {self.tree.text(node.path): node for node in reversed(active)}
            active = [node for node in active if first[self.tree.text(node.path)] is node]
        places = sorted(range(len(active)), key=lambda i: self._path_score(active[i]))
        top = set(places[-(self.config.n // self.config.beam_width) :])
        return [node for place, node in enumerate(active) if place in top]


class LiteralDvts(LiteralSearch[DvtsConfig]):
    """`_dvts`: a list of subtrees, each with beam_width candidates."""

    def __init__(self, config: DvtsConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample."""
        super().__init__(config, seed, config.semantics)
        self._finished: dict[int, list[Node]] = {}
        width = config.beam_width
        for subtree in range(config.n // width):
            first = subtree * width
            self._open(((child,) for child in range(first, first + width)), key=subtree)

    def _is_active(self, pool: Pool, node: Node) -> bool:
        return super()._is_active(pool, node) and dvts.ANSWERED not in self.tree.text(node.path)

    def _decide(self, pool: Pool) -> None:
        best = max(pool.candidates, key=lambda candidate: self._path_score(candidate.end))
        if best.active:
            for node in pool.ends:
                node.fate = Fate.PRUNED
            best.end.fate = Fate.EXPANDED
            children = range(self.config.beam_width)
            self._open(((*best.end.path, child) for child in children), after=pool)
            return
        self._finished[pool.key] = pool.ends
        for node in pool.ends:
            node.fate = Fate.COMPLETED
        if len(self._finished) == self.config.n // self.config.beam_width:
            self._finish_as_listed(
                [n for key in sorted(self._finished) for n in self._finished[key]]
            )


def _text(node: Node) -> str:
    return node.thought.text if node.thought else ""
