"""The numbers of one figure of a study, as measurements.json keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Cell = str | int | float | bool | None
Row = dict[str, Cell]


@dataclass(frozen=True)
class Measurement:
    """One table: `name` is its figure's."""

    name: str
    rows: Sequence[Row]
    origin: Literal["measured", "modelled"] = "measured"
    """Measured on live engines; or computed: from the memory plan, or by putting the run's own
    requests through a model of the KV cache."""
    notes: Sequence[str] = field(default=())
