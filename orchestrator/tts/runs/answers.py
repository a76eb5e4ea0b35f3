"""The answers of a run as a table: a row for each solved problem, made from the log.

A finished run has it as answers.jsonl and answers.csv; `tts runs export` makes it of any run.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from .files import write_whole
from .folder import ANSWERS, writing
from .measures import ProblemMeasures
from .run import Run

_HARMLESS = re.compile(r"(?a:[-+]?[\d.,]*( \[[-+\d., ]*\])?)")
"""`-5`, `+1,000.5`, `+0.0 [-15.4, +15.4]`, a dash, nothing."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A solved problem's answer; the fields are the columns of the table."""

    id: str
    question: str
    answer: str | None
    """The answer by the strategy's own rule; null if no completion has one."""
    score: float | None
    """The verifier's score of the best completion with this answer; null without one, or without
    scores."""
    probability: float | None
    """What `verifier.calibration` makes of it: the probability of being right; null without one."""
    correct: bool | None
    """Whether it equals the reference; null without a reference."""
    tokens: int
    """Generated tokens of both models, without speculation in vain."""
    seconds: float | None
    """From the start of the problem to its answer."""


def answers_of(run: Run, vote: str | None = None) -> list[Answer]:
    """The answers of the solved problems in the run's order, by this vote or its own.

    Raises RunError.
    """
    vote = vote or run.config.vote
    place = {name: number for number, name in enumerate(run.config.problem_ids)}
    answers = [_answer(problem, vote) for problem in run.totals.problems.values()]
    return sorted(answers, key=lambda answer: place.get(answer.id, len(place)))


def as_table(answers: Sequence[Any], kind: str, of: type = Answer) -> str:
    """The table as text of a kind of ANSWERS: a JSON object a line, or CSV with a header.

    Its rows are of one dataclass, `of`.
    """
    if kind == "jsonl":
        return "".join(f"{json.dumps(asdict(each), ensure_ascii=False)}\n" for each in answers)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    rows.writerow(field.name for field in fields(of))
    rows.writerows(map(csv_cell, asdict(each).values()) for each in answers)
    return text.getvalue()


def write_answers(run: Run) -> None:
    """Write the files of a finished run; raises RunError."""
    answers = answers_of(run)
    with writing(run.folder):
        for kind, name in ANSWERS.items():
            write_whole(run.folder / name, as_table(answers, kind))


def _answer(problem: ProblemMeasures, vote: str) -> Answer:
    answer = problem.answers.get(vote)
    score, probability = problem.scores.get(answer or "", (None, None))
    return Answer(
        id=problem.id,
        question=problem.text,
        answer=answer,
        score=None if score is None else float(f"{score:.6g}"),
        probability=None if probability is None else float(f"{probability:.6g}"),
        correct=None if problem.correct is None else problem.correct.get(vote),
        tokens=problem.search_tokens,
        seconds=None if problem.seconds is None else round(problem.seconds, 3),
    )


def csv_cell(value: object) -> object:
    """A value as a cell: a text that a spreadsheet would take for a formula begins with `'`.

    Numbers, with an interval or without, and dashes are left as they are.
    """
    if isinstance(value, str) and (value[:1] in "=+-@" or not value[:1].isprintable()):
        return value if _HARMLESS.fullmatch(value) else f"'{value}"
    return str(value).lower() if isinstance(value, bool) else value
