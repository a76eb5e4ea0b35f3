"""Recorded chains as their steps' lengths and scores, from a trace file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts.build.errors import DatasetError
from tts.build.input_files import parse_json, read_text

CHARACTERS_PER_TOKEN = 3.5  # of mathematical text; traces hold text only


@dataclass(frozen=True)
class Chain:
    """A recorded chain, first step first: tokens and score of each step."""

    lengths: tuple[int, ...]
    scores: tuple[float, ...]


def read_chains(file: Path) -> list[Chain]:
    """The chains of a trace file: JSONL with `text`, `sep` and a list `step_scores`.

    Chains without one score within [0, 1] for every step are left out. Raises DatasetError.
    """
    try:
        rows = [parse_json(line) for line in read_text(file).splitlines()]
        read = [_chain(row) for row in rows if None not in (row.get("step_scores") or [None])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DatasetError(f"{file} cannot be read as traces: {error!r}") from error
    chains = [
        chain
        for chain in read
        if len(chain.lengths) == len(chain.scores)
        and all(0 <= score <= 1 for score in chain.scores)
    ]
    if not chains:
        raise DatasetError(f"{file} holds no chains with a score for every step.")
    return chains


def _chain(row: dict[str, Any]) -> Chain:
    steps = row["text"].split(row["sep"])
    tokens = [max(2, round(len(step) / CHARACTERS_PER_TOKEN)) for step in steps]
    return Chain(tuple(tokens), tuple(float(score) for score in row["step_scores"]))
