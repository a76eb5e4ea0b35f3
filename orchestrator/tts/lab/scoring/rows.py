"""Scores and measurements as rows: for JSON, CSV and Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tts.base.errors import ConfigError
from tts.base.extras import how_to_install
from tts.runs.answers import as_table
from tts.runs.clustered import Estimate, commonest
from tts.search import Calibration

from .chains import ScoredChain
from .measurement import Discrimination, Measurement

_DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """A scored step; the fields are the columns of the table."""

    problem: str
    """The problem's id."""
    id: str
    """The chain's name, unique in its input."""
    level: str | None
    step: int
    """Its number, from 1 on."""
    steps: int
    """Steps of its chain."""
    text: str
    length: int
    """Length of the step."""
    score: float | None
    """The verifier's own; null for a step that it does not score."""
    probability: float | None
    """What `verifier.calibration` makes of the score; null without one."""
    right: bool | None
    """The step's label."""
    answer_right: bool | None
    """Whether the chain's answer is right."""


@dataclass(frozen=True, kw_only=True)
class MeasureRow:
    """An estimate of a measurement with its 95% interval."""

    of: str
    """What was judged: steps, inner (steps before the last), answers by last, min, prod or mean, or
    first errors."""
    measure: str
    """Its name, such as auroc."""
    by: str | None
    """What parts the group from others: depth, length or level; null for all observations."""
    group: str | None
    value: float
    low: float
    high: float
    problems: int
    """Problems with observations."""


def step_rows(
    chains: Sequence[ScoredChain],
    calibration: Calibration | None = None,
) -> Iterator[StepRow]:
    """A row for each step."""
    for scored in chains:
        chain, count = scored.chain, len(scored.scores)
        labels = chain.right_steps or (None,) * count
        for place, score in enumerate(scored.scores):
            yield StepRow(
                problem=chain.problem,
                id=chain.name,
                level=chain.level,
                step=place + 1,
                steps=count,
                text=chain.steps[place],
                length=scored.lengths[place],
                score=score,
                probability=None
                if calibration is None or score is None
                else calibration.probability(score, final=place == count - 1),
                right=labels[place],
                answer_right=chain.right,
            )


def measure_rows(measurement: Measurement) -> Iterator[MeasureRow]:
    """All estimates of a measurement."""
    kinds: list[tuple[str, Discrimination | None]] = [
        *((f"answers by {how}", kind) for how, kind in measurement.answers.items()),
        ("steps", measurement.steps),
        ("inner", measurement.inner),
    ]
    for of, kind in kinds:
        if kind is not None:
            yield from _rows(of, kind)
    if (first := measurement.first_error) is not None:
        measures = {
            "f1": first.f1,
            "erroneous": first.erroneous,
            "correct": first.correct,
            "f1_at_0.5": first.f1_at_half,
        }
        for measure, estimate in measures.items():
            yield _row("first errors", measure, estimate)
        for level, estimate in first.by_level.items():
            yield _row("first errors", "f1", estimate, "level", level)
    if (common := commonest(measurement.every)) is not None:
        yield _row("scores", "share_of_commonest", common[1])


def _rows(of: str, kind: Discrimination) -> Iterator[MeasureRow]:
    measures: dict[str, Estimate | None] = {
        "auroc": kind.auroc,
        "auroc_within_problems": kind.within,
        "expected_calibration_error": kind.expected_error,
        "brier_score": kind.brier,
        **{f"auroc_of_{by}_alone": area for by, area in kind.alone.items()},
        **{f"rank_correlation_with_{by}": each for by, each in kind.correlations.items()},
    }
    if kind.picks is not None:
        measures |= {
            "best_is_right": kind.picks.best,
            "random_is_right": kind.picks.random,
            "any_is_right": kind.picks.any,
        }
    for measure, estimate in measures.items():
        if estimate is not None:
            yield _row(of, measure, estimate)
    for group in kind.groups:
        for measure, estimate in (
            ("auroc", group.auroc),
            ("expected_calibration_error", group.expected_error),
        ):
            if estimate is not None:
                yield _row(of, measure, estimate, group.by, group.name)


def _row(
    of: str, measure: str, estimate: Estimate, by: str | None = None, group: str | None = None
) -> MeasureRow:
    low, high = estimate.interval
    return MeasureRow(
        of=of,
        measure=measure,
        by=by,
        group=group,
        value=round(estimate.value, _DIGITS),
        low=round(low, _DIGITS),
        high=round(high, _DIGITS),
        problems=estimate.problems,
    )


def table_of(rows: Sequence[Any], of: type, kind: str) -> bytes:
    """Rows of a dataclass as `jsonl`, `csv` or `parquet`; raises ConfigError without pyarrow."""
    if kind != "parquet":
        return as_table(rows, kind, of).encode()
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            f"Parquet files are written by pyarrow, which cannot be used: {error}.",
            hint=f"Install it: {how_to_install('parquet')}\nOr take the rows as JSONL or CSV.",
        ) from error
    stream = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist([asdict(row) for row in rows]), stream)
    return stream.getvalue()
