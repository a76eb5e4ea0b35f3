"""How a dataset is read, and what is taken of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast, get_args

from tts.build.errors import DatasetError
from tts.runs.config import RunConfig

from .answers import AnswerKind
from .columns import Role, check_columns
from .shards import Shard


@dataclass(frozen=True)
class DatasetOptions:
    """What a user may say of a dataset besides its name and a limit. Raises DatasetError."""

    seed: int | None = None
    """Seed of generated problems and of draws; None: the run's."""
    columns: Mapping[Role, str] = field(default_factory=dict)
    """The columns that the user named, by what they hold."""
    answers: AnswerKind | None = None
    """How a file's answers are written; None: as they are, or after GSM8K's `####`."""
    per_level: int | None = None
    """How many problems to draw of each level; None: all problems, in their order."""
    shard: Shard | None = None
    """The part of the chosen problems; None: all of them."""

    def __post_init__(self) -> None:
        check_columns(self.columns)
        if self.answers is not None and self.answers not in get_args(AnswerKind):
            raise DatasetError(
                f"Answers are read as {', '.join(get_args(AnswerKind))}, not as "
                f"{self.answers!r:.100}."
            )
        if self.per_level is not None and self.per_level < 1:
            raise DatasetError(f"{self.per_level} problems per level; it must be at least 1.")

    @classmethod
    def of_config(cls, config: RunConfig) -> DatasetOptions:
        """The options of a run; one that names no seed for its dataset has one for both."""
        return cls(
            config.seed if config.dataset_seed is None else config.dataset_seed,
            cast("Mapping[Role, str]", config.columns),
            cast("AnswerKind | None", config.answers),
            config.per_level,
            Shard.parse(config.shard) if config.shard is not None else None,
        )

    def seed_of(self, seed: int) -> int:
        """The seed for problems in a run with this one."""
        return seed if self.seed is None else self.seed
