"""The files of a scoring: a row for each step, for each candidate, and for each problem's best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from tts.runs.files import write_whole
from tts.runs.folder import writing
from tts.search.thought import aggregate, significant
from tts.session import Result

from .measurement import Measurement
from .rows import MeasureRow, StepRow, measure_rows, step_rows, table_of
from .score_run import Scored

KINDS = ("jsonl", "csv", "parquet")


@dataclass(frozen=True, kw_only=True)
class CandidateRow:
    """A candidate that was made elsewhere; the fields are the columns of the table."""

    problem: str
    candidate: int
    """Its number among those of its problem, from 1 on."""
    rank: int
    """1 is the best, by the score of the last step or what a calibration makes of it; ties go by
    the number."""
    last: float | None
    """The score of the last step; null for a candidate without scores."""
    min: float | None
    prod: float | None
    mean: float | None
    answer: str | None
    """As the first candidate with an equal answer spells it; null without one."""
    text: str


@dataclass(frozen=True, kw_only=True)
class BestRow:
    """A problem's best candidate, and the answers that its candidates vote for."""

    problem: str
    question: str
    candidates: int
    best: int
    """The number of the best candidate, from 1 on."""
    score: float | None
    answer: str | None
    """The best candidate's."""
    weighted: str | None
    """The answer with the largest sum of scores."""
    majority: str | None
    """The answer of most candidates."""
    correct: bool | None
    """Whether `answer` equals the reference; null without one."""
    text: str
    """The best candidate."""


def candidate_rows(rankings: Sequence[Result]) -> Iterator[CandidateRow]:
    """A row for each candidate, best first."""
    for result in rankings:
        for rank, candidate in enumerate(result.completions, 1):
            scores = [score for score in candidate.step_scores if score is not None]

            def by(how: Any, scores: Sequence[float] = scores) -> float | None:
                return significant(aggregate(scores, how)) if scores else None

            yield CandidateRow(
                problem=result.problem.id,
                candidate=candidate.node[0] + 1,
                rank=rank,
                last=by("last"),
                min=by("min"),
                prod=by("prod"),
                mean=by("mean"),
                answer=candidate.answer,
                text=candidate.text,
            )


def best_rows(rankings: Sequence[Result]) -> Iterator[BestRow]:
    """A row for each problem."""
    for result in rankings:
        best = result.completions[0]
        yield BestRow(
            problem=result.problem.id,
            question=result.problem.question,
            candidates=len(result.completions),
            best=best.node[0] + 1,
            score=None if best.score is None else significant(best.score),
            answer=best.answer,
            weighted=result.answers["weighted"],
            majority=result.answers["majority"],
            correct=result.correct,
            text=best.text,
        )


def write_tables(
    scored: Scored,
    measurement: Measurement,
) -> list[str]:
    """Write the files; their names without endings. Parquet is written where pyarrow is there."""
    tables: dict[str, tuple[type, Sequence[Any]]] = {
        "steps": (StepRow, [*step_rows(scored.chains, scored.calibration)]),
        "measures": (MeasureRow, [*measure_rows(measurement)] if measurement.main else []),
        "candidates": (CandidateRow, [*candidate_rows(scored.rankings)]),
        "best": (BestRow, [*best_rows(scored.rankings)]),
    }
    tables = {name: table for name, table in tables.items() if table[1]}
    with writing(scored.folder):
        for kind in KINDS if find_spec("pyarrow") else KINDS[:-1]:
            for name, (of, rows) in tables.items():
                write_whole(scored.folder / f"{name}.{kind}", table_of(rows, of, kind))
    return list(tables)
