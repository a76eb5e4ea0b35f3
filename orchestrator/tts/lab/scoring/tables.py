"""What a scoring writes: rows of steps, estimates, candidates and the best; the calibration."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tts.base.errors import ConfigError
from tts.build.deployment_edit import require_writable, write_values
from tts.build.spec import bundled_deployments, deployment_file
from tts.runs.clustered import Estimate, commonest
from tts.runs.files import write_whole
from tts.runs.folder import writing
from tts.runs.tables import as_table
from tts.search import Calibration
from tts.search.thought import aggregate, significant
from tts.session import Result

from .calibrate import VerifierMaps, calibration_fields
from .chains import ScoredChain
from .measurement import AGGREGATIONS, Measurement
from .score_run import Scored

KINDS = ("jsonl", "csv", "parquet")
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
    """The answer as the first candidate with an equal one spells it; null without one."""
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
    for of, measure, estimate, by, group in _estimates(measurement):
        if estimate is not None:
            ends = estimate.interval
            value, low, high = (round(each, _DIGITS) for each in (estimate.value, *ends))
            yield MeasureRow(
                of=of,
                measure=measure,
                by=by,
                group=group,
                value=value,
                low=low,
                high=high,
                problems=estimate.problems,
            )


def _estimates(
    measurement: Measurement,
) -> Iterator[tuple[str, str, Estimate | None, str | None, str | None]]:
    """The subject of each estimate, its name, itself, and the group that it is of."""
    kinds = {f"answers by {how}": kind for how, kind in measurement.answers.items()}
    for of, kind in (*kinds.items(), ("steps", measurement.steps), ("inner", measurement.inner)):
        if kind is None:
            continue
        measures: dict[str, Estimate | None] = {
            "auroc": kind.auroc,
            "auroc_within_problems": kind.within,
            "expected_calibration_error": kind.expected_error,
            "brier_score": kind.brier,
            **{f"auroc_of_{by}_alone": area for by, area in kind.alone.items()},
            **{f"rank_correlation_with_{by}": each for by, each in kind.correlations.items()},
        }
        if kind.picks:
            for pick in ("best", "random", "any"):
                measures[f"{pick}_is_right"] = getattr(kind.picks, pick)
        for measure, estimate in measures.items():
            yield of, measure, estimate, None, None
        for group in kind.groups:
            yield of, "auroc", group.auroc, group.by, group.name
            error = group.expected_error
            yield of, "expected_calibration_error", error, group.by, group.name
    if (first := measurement.first_error) is not None:
        yield "first errors", "f1", first.f1, None, None
        yield "first errors", "erroneous", first.erroneous, None, None
        yield "first errors", "correct", first.correct, None, None
        yield "first errors", "f1_at_0.5", first.f1_at_half, None, None
        for level, estimate in first.by_level.items():
            yield "first errors", "f1", estimate, "level", level
    if (common := commonest(measurement.every)) is not None:
        yield "scores", "share_of_commonest", common[1], None, None


def candidate_rows(rankings: Sequence[Result]) -> Iterator[CandidateRow]:
    """A row for each candidate, best first."""
    for result in rankings:
        for rank, candidate in enumerate(result.completions, 1):
            scores = [score for score in candidate.step_scores if score is not None]
            by = {how: significant(aggregate(scores, how)) for how in AGGREGATIONS if scores}
            yield CandidateRow(
                problem=result.problem.id,
                candidate=candidate.node[0] + 1,
                rank=rank,
                last=by.get("last"),
                min=by.get("min"),
                prod=by.get("prod"),
                mean=by.get("mean"),
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


def write_tables(scored: Scored, measurement: Measurement) -> list[str]:
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
                write_whole(scored.folder / f"{name}.{kind}", as_table(rows, kind, of))
    return list(tables)


def writable_file(deployment: str) -> Path:
    """The file of a deployment that may be changed; raises ConfigError for any other."""
    file = deployment_file(deployment)
    if deployment in bundled_deployments():
        raise ConfigError(
            f"{deployment} is a bundled deployment, and is not changed.",
            hint=f"Copy it, set its name and its checkpoint paths, and name the copy: cp {file} .",
        )
    require_writable(file)
    return file


def write_calibration(
    file: Path, scored: Scored, measurement: Measurement, maps: VerifierMaps
) -> bool:
    """Set verifier.calibration in a deployment file; False if no map holds. Raises ConfigError."""
    fields = calibration_fields(measurement, maps)
    if not fields:
        return False
    measured = {
        "on": scored.source,
        "problems": measurement.problems,
        "chains": measurement.chains,
        "date": datetime.date.today().isoformat(),
        "verifier": asdict(scored.verifier),
    }
    write_values(file, {("verifier", "calibration"): {**fields, "measured": measured}})
    return True
