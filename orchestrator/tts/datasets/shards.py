"""Every so-many-th of a dataset's problems: a part that one machine solves, by files alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tts.build.errors import DatasetError

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """The part `number` of `count`, counted from 1: problems number, number + count, ..."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise DatasetError(
                f"Shard {self} does not exist.", hint="Give it as i/N, with i from 1 to N."
            )

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read a shard that is written `i/N`; raises DatasetError."""
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if not found:
            raise DatasetError(
                f"{text!r:.100} is no shard.", hint="Give it as i/N, such as 1/8: the first of 8."
            )
        return cls(int(found[1]), int(found[2]))

    def of(self, items: Sequence[T]) -> list[T]:
        """The shard's part of all items, in their order; sizes of parts differ by one at most."""
        return list(items[self.number - 1 :: self.count])

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def interleaved(parts: Sequence[Sequence[T]]) -> list[T] | None:
    """All items from the parts of shards 1 to N, in their first order; None if they do not fit."""
    total = sum(map(len, parts))
    sizes = [len(range(number, total, len(parts))) for number in range(len(parts))]
    if [len(part) for part in parts] != sizes:
        return None
    return [parts[place % len(parts)][place // len(parts)] for place in range(total)]
