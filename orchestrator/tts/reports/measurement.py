"""The output of `tts score`: the best candidates, and a verifier measured on labels.

The measurement is a table and sentences in the terminal, and a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tts.lab.scoring.calibrate import VerifierMaps
from tts.lab.scoring.measurement import Measurement
from tts.lab.study.advice import StudyAdvice
from tts.runs.verdicts import Finding
from tts.session import Result

from .console import Sheet, table
from .figures.verifier import discrimination, measurement_figures
from .page.of_runs import facts_of
from .page.page import Facts, Report

MOST_ROWS = 40
_CHARACTERS = 60
_VOTES = ("weighted", "majority")


def print_rankings(out: Console, rankings: Sequence[Result]) -> None:
    """Print a row for each problem: its best candidate, what that answers, what others vote for."""
    judged = any(result.correct is not None for result in rankings)
    columns = ("best", "score", "answer", *_VOTES, *["right"] * judged)
    sheet = table("problem", right=columns)
    for result in rankings[:MOST_ROWS]:
        best = result.completions[0]
        right = "" if result.correct is None else "yes" if result.correct else "no"
        sheet.add_row(
            f"{result.problem.id:.{_CHARACTERS}}",
            f"{best.node[0] + 1} of {len(result.completions)}",
            "-" if best.score is None else f"{best.score:.4f}",
            *(_short(each) for each in (best.answer, *map(result.answers.get, _VOTES))),
            *[right] * judged,
        )
    out.print(Sheet(sheet))
    if (more := len(rankings) - MOST_ROWS) > 0:
        out.print(f"... and {more:,} problems more")


def _short(answer: str | None) -> str:
    return "-" if answer is None else f"{' '.join(answer.split()):.{_CHARACTERS}}"


FOUND = (
    "Findings",
    "Each rests on a 95% interval that allows for chains of one problem being alike, never on an "
    "estimate alone.",
)


def print_measurement(
    out: Console, measurement: Measurement, findings: Sequence[Finding], maps: VerifierMaps | None
) -> None:
    """Print the table of what was measured, and below it what it says."""
    if measurement.main is not None:
        figure = discrimination(measurement)
        of, *columns = figure.columns
        sheet = table(of, right=columns)
        for row in figure.rows:
            sheet.add_row(
                *(
                    f"{row[name]:,}" if isinstance(row[name], int) else str(row[name])
                    for name in figure.columns
                )
            )
        out.print(Sheet(sheet))
        out.print()
    for finding in findings:
        out.print(finding.text, markup=False, soft_wrap=True)
    if maps is not None:
        out.print(maps.verdict, markup=False, soft_wrap=True)


def measurement_report(
    file: Path,
    title: str,
    measurement: Measurement,
    findings: Sequence[Finding],
    maps: VerifierMaps | None = None,
    facts: Facts | None = None,
) -> Report:
    """The page of a measurement; `facts` say what was measured on what."""
    return Report(
        file,
        title,
        measurement_figures(measurement, maps),
        facts={**(facts or {}), **facts_of([])},
        lead=f"{measurement.chains:,} chains of {measurement.problems:,} problems, "
        f"{measurement.scores:,} step scores.",
        advice=[StudyAdvice(each.name.capitalize(), each.text, each.figure) for each in findings],
        advised=FOUND,
    )
