"""`tts runs compare`."""

import pytest
from tests.runs.runs import log_of, write_run
from typer.testing import CliRunner

from tts.cli import app

OURS = {"a": True, "b": True, "c": False}


@pytest.fixture
def runs(tmp_path):
    theirs = {"a": True, "b": False, "c": True}
    return (
        str(write_run(tmp_path / "ours", log_of(OURS))),
        str(write_run(tmp_path / "theirs", log_of(theirs, tokens=15), seed=7)),
    )


def test_what_differs_comes_first_then_the_differences_and_who_is_right(runs):
    shown = CliRunner().invoke(app, ["runs", "compare", *runs])
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    order = ["what differs", "seed", "theirs against ours, on the 3 problems of both", "accuracy"]
    assert sorted(order, key=text.index) == order
    for part in (
        "+0.0 points",
        "generated tokens 5 15 +10 (+10 to +10)",
        "right in ours only, 1: b",
        "right in theirs only, 1: c",
        "p = 1; right in both: 1, in neither: 0",
    ):
        assert part in text


def test_one_run_is_no_comparison(runs):
    refused = CliRunner().invoke(app, ["runs", "compare", runs[0]])
    assert refused.exit_code == 2
    assert "name two runs or more" in refused.output


def test_without_references_there_are_costs_alone(tmp_path):
    folders = [str(write_run(tmp_path / name, log_of({"a": None}))) for name in ("one", "other")]
    shown = CliRunner().invoke(app, ["runs", "compare", *folders])
    assert "The runs were asked for the same." in shown.output
    assert "no reference answers" in shown.output
