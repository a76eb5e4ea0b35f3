"""The output of a verifier's measurement: sentences and a table in the terminal, and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tts.lab.scoring.calibrate import VerifierMaps
from tts.lab.scoring.measurement import Measurement
from tts.lab.study.advice import StudyAdvice
from tts.runs.verdicts import Finding

from .figures.verifier import discrimination, measurement_figures
from .page.of_runs import Report
from .page.page import Facts
from .sheet import Sheet, table

FOUND = (
    "Findings",
    "Each rests on a 95% interval, which knows that chains of one problem are alike, never on an "
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
        f"{measurement.chains:,} chains of {measurement.problems:,} problems, "
        f"{measurement.scores:,} step scores.",
        measurement_figures(measurement, maps),
        [],
        advice=[StudyAdvice(each.name.capitalize(), each.text, each.figure) for each in findings],
        advised=FOUND,
        configuration=facts or {},
    )
