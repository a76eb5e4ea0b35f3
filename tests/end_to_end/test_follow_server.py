"""The page of a run that goes on is written by another process, through the real command line."""

import pytest
from tests.end_to_end.commands import wait_for_events

pytestmark = pytest.mark.server


def test_a_run_is_followed_to_its_end_from_another_process(served, tmp_path):
    file = tmp_path / "sums.csv"
    file.write_text("asked,right,difficulty\nCompute 2 + 2.,4,1\nCompute 50 - 8.,42,2\n")
    columns = "problem=asked,answer=right,level=difficulty"
    folder = tmp_path / "run"
    arguments = ("--n", 4, "--columns", columns, "--seed", 1, "--dataset-seed", 2)
    bench = served.start("bench", "demo", "--dataset", file, *arguments, "--out", folder)
    wait_for_events(bench, folder, "session", 1)
    following = served.start("report", folder, "--follow")
    _, err = bench.communicate(timeout=180)
    _, said = following.communicate(timeout=60)
    assert (bench.returncode, following.returncode) == (0, 0), err + said
    columns = "2 of 2 problems; problem from 'asked', answer from 'right', level from 'difficulty'"
    assert columns in " ".join(err.split())
    assert "2 problems of" in (folder / "report.html").read_text()
