"""What beam search and DVTS by the letter of search-and-learn's code share.

https://github.com/huggingface/search-and-learn: `_beam_search`, `_dvts` and `aggregate_scores`.
Beams are a list whose order decides what scores do not: completions come out in that order, the
kept beams are repeated in it, and of equal scores beam search keeps the last and DVTS the first.

Its verifier splits a text at the delimiter, so a step that ends in it leaves an empty last piece,
which is scored as a turn of its own. Here that piece is a node below the step (child -1, fate
`lookahead`) with an empty text; `search-and-learn-stripped` leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from pydantic import model_validator

from .candidates import Candidate, Pool
from .config import StepConfig, VotingConfig
from .protocol import Score
from .seeds import SeedOf
from .step_search import StepSearch
from .thought import Completion, Fate, Stop, Thought, aggregate
from .tree import Node, Rank

Semantics = Literal["native", "search-and-learn", "search-and-learn-stripped"]
"""Whose rules decide: this project's, or search-and-learn's with empty last pieces scored, or with
them stripped."""

EMPTY_PIECE = Thought((), "", Stop.STEP)
ANSWERED = "boxed{"
"""A chain that holds this has its answer; its subtree of DVTS ends."""

Config = TypeVar("Config", bound=StepConfig)


def require_literal(config: StepConfig, **off: object) -> None:
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


class LiteralConfig(VotingConfig):
    """Parameters of a search that has `semantics`."""

    @model_validator(mode="before")
    @classmethod
    def _ends_by_eos(cls, values: Any) -> Any:
        """The last iteration of search-and-learn generates to the end of the sequence."""
        if isinstance(values, dict) and values.get("semantics", "native") != "native":
            return {"finish": "eos", **values}
        return values


class LiteralSearch(StepSearch[Config]):
    """What both searches share: when a chain has ended, and what is scored."""

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
                asks.append(Score(candidate.tip.path, group, completes=False, empty_turn=True))
            elif not thought.text and len(path) > 1:
                asks[-1] = Score(path, group, completes=False, empty_turn=True)
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


def _text(node: Node) -> str:
    return node.thought.text if node.thought else ""
