"""Figures of a measured verifier, its page and its table."""

import io
import itertools

import pytest
from rich.console import Console
from tests.lab.scoring.worlds import VERIFIERS, good, scored_chains
from tests.reports.figures.checks import check_all

from tts.lab.scoring.calibrate import calibrate
from tts.lab.scoring.findings import findings_of
from tts.lab.scoring.measurement import measure
from tts.reports.figures.verifier import measurement_figures, reliability, roc
from tts.reports.measurement import measurement_report, print_measurement
from tts.runs.verdicts import Finding


def measured(verifier, problems=60, **fields):
    measurement = measure(scored_chains(verifier, problems, **fields))
    inner = measurement.inner and measurement.inner.these
    return measurement, calibrate(measurement.final and measurement.final.these, inner)


@pytest.mark.parametrize(
    ("verifier", "labelled"),
    [
        ("good", "answers"),
        ("good", "steps"),
        ("good", "both"),
        ("constant", "both"),
        ("saturated", "answers"),
        ("long", "answers"),
    ],
)
def test_every_figure_is_one_and_every_finding_has_its_own(verifier, labelled):
    measurement, maps = measured(VERIFIERS[verifier], labelled=labelled)
    figures = measurement_figures(measurement, maps)
    check_all(figures)
    names = {figure.name for figure in figures}
    assert {finding.figure for finding in findings_of(measurement)} <= names | {""}
    assert {"discrimination", "roc", "scores", "calibration", "groups", "maps"} <= names
    assert ("first-errors" in names) == (labelled != "answers")


def test_what_cannot_be_drawn_is_left_out():
    assert measurement_figures(measure([])) == []
    measurement, maps = measured(lambda facts: 0.7, problems=3)
    assert "maps" not in {figure.name for figure in measurement_figures(measurement, maps)}
    assert roc({}) is None


def test_roc_begins_and_ends_in_corners_and_rises():
    measurement, _ = measured(good)
    rows = roc({"answers": measurement.final.these}).rows
    points = [(row["wrong ones passed"], row["right ones passed"]) for row in rows]
    assert (points[0], points[-1]) == ((0, 0), (1, 1))
    assert points == sorted(points)
    area = sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in itertools.pairwise(points))
    assert area == pytest.approx(measurement.final.auroc.value, abs=0.01)


def test_reliability_has_the_share_right_of_each_bin_and_what_the_map_makes_of_it():
    measurement, maps = measured(VERIFIERS["squeezed"], problems=150)
    these = measurement.final.these
    figure = reliability(these, "answers", maps.final)
    assert sum(row["answers"] for row in figure.rows) == len(these)
    for row in figure.rows:
        low, high = map(float, row["scores"].split(" to "))
        mine = these.right[(these.scores >= low) & (these.scores < high)]
        assert row["share right"] == pytest.approx(mine.mean(), abs=1e-4)
        assert row["low"] <= row["share right"] <= row["high"]
        assert abs(row["probability"] - row["share right"]) < 0.15
    assert not any(row["within the noise"] for row in figure.rows)


def test_the_page_and_the_terminal_say_all_findings(tmp_path):
    measurement, maps = measured(good, labelled="both")
    findings = [*findings_of(measurement), Finding("cost", "1,000 steps take 4.0 s.")]
    report = measurement_report(
        tmp_path / "report.html",
        "Verifier",
        measurement,
        findings,
        maps,
        {"Verifier": {"model": "m"}},
    )
    page = report.write().read_text()
    out = io.StringIO()
    print_measurement(Console(file=out, width=80), measurement, findings, maps)
    for finding in findings:
        assert finding.text in out.getvalue()
        assert finding.text in page.replace("&#39;", "'")
    assert maps.verdict in out.getvalue()
    assert "Each rests on a 95% interval" in page
    assert report.tables[0].title == "Findings"
    bare = io.StringIO()
    print_measurement(Console(file=bare), measure([]), findings_of(measure([])), None)
    assert bare.getvalue().startswith("Nothing is labelled")
