"""Tree strategies whose search may stop once its vote is decided."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from .config import VotingConfig
from .early_stop import AnswerOf, EarlyStop
from .seeds import SeedOf
from .step_search import StepSearch
from .tree import Node

Config = TypeVar("Config", bound=VotingConfig)


class VotingSearch(StepSearch[Config]):
    """Base of the strategies that count completions and finish once the vote is decided."""

    def __init__(self, config: Config, seed: SeedOf, answer_of: AnswerOf | None = None) -> None:
        """`answer_of` reads the answer of a completion; only an early stop needs it."""
        super().__init__(config, seed)
        self._stop = EarlyStop.of(config.early_stop, config.agree, config.n, answer_of)

    def _count(self, completed: Iterable[Node]) -> None:
        """Count completions for an early stop, if one is wanted."""
        if self._stop:
            for node in completed:
                self._stop.add(self.tree.text(node.path), self._path_score(node))

    @property
    def _vote_is_decided(self) -> bool:
        """Whether the completions counted so far decide the vote, if an early stop is wanted."""
        return self._stop is not None and self._stop.decided
