"""Scores and measures as rows of files."""

import csv
import io
import json
from dataclasses import replace

import pytest
from tests.lab.scoring.worlds import good, scored_chains

from tts.lab.scoring.measurement import measure
from tts.lab.scoring.tables import MeasureRow, StepRow, measure_rows, step_rows
from tts.runs.tables import as_table
from tts.search import Calibration

CHAINS = scored_chains(good, 30, labelled="both")


def test_each_step_is_a_row():
    chains = [replace(CHAINS[0], scores=(None, *CHAINS[0].scores[1:])), *CHAINS[1:]]
    rows = list(step_rows(chains, Calibration.of([(0, 0), (1, 0.5)], [(0, 1), (1, 1)])))
    assert len(rows) == sum(len(each.scores) for each in chains)
    first, count = rows[0], len(chains[0].scores)
    assert (first.score, first.probability, first.step, first.steps) == (None, None, 1, count)
    assert rows[count - 1].probability == rows[count - 1].score / 2
    assert rows[1].probability == (1.0 if count > 2 else rows[1].score / 2)
    assert rows[0].right == chains[0].chain.right_steps[0]
    assert next(step_rows(CHAINS)).probability is None


def test_each_estimate_is_a_row_with_its_interval():
    measured = measure(CHAINS)
    rows = list(measure_rows(measured))
    assert all(row.low <= row.value <= row.high for row in rows if "correlation" not in row.measure)
    of = {(row.of, row.measure) for row in rows if row.by is None}
    assert {("answers by last", "auroc"), ("steps", "brier_score"), ("inner", "auroc")} <= of
    assert {("first errors", "f1"), ("answers by prod", "best_is_right")} <= of
    assert {row.by for row in rows} == {None, "depth", "length", "level"}
    (area,) = [r for r in rows if (r.of, r.measure, r.by) == ("answers by last", "auroc", None)]
    assert area.value == pytest.approx(measured.final.auroc.value, abs=1e-6)


@pytest.mark.parametrize(("make", "of"), [(step_rows, StepRow), (measure_rows, MeasureRow)])
def test_every_format_holds_the_same_rows(make, of):
    rows = list(make(CHAINS if of is StepRow else measure(CHAINS)))
    lines = [json.loads(line) for line in as_table(rows, "jsonl", of).splitlines()]
    cells = list(csv.DictReader(io.StringIO(as_table(rows, "csv", of).decode())))
    assert len(lines) == len(cells) == len(rows)
    assert lines[0].keys() == cells[0].keys()
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(io.BytesIO(as_table(rows, "parquet", of))).to_pylist() == lines
    assert as_table([], "csv", of).count(b"\n") == 1
