"""A run that goes on is watched from another process, through the real command line."""

import pytest
from tests.end_to_end.commands import summary, wait_for_events

from tts.build import paths

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not (paths.deployments_dir().parent / "checkpoints" / "demo-verifier").is_dir(),
        reason="the demo checkpoints are not here",
    ),
]


def test_a_run_is_watched_to_its_end_from_another_process_and_by_itself(served, tmp_path):
    file = tmp_path / "sums.csv"
    file.write_text("asked,right,difficulty\nCompute 2 + 2.,4,1\nCompute 50 - 8.,42,2\n")
    columns = "problem=asked,answer=right,level=difficulty"
    folder = tmp_path / "run"
    arguments = ("--n", 4, "--columns", columns, "--seed", 1, "--dataset-seed", 2, "--watch")
    bench = served.start("bench", "demo", "--dataset", file, *arguments, "--out", folder)
    wait_for_events(bench, folder, "session", 1)
    top = served.start("runs", "watch", folder)
    out, err = bench.communicate(timeout=180)
    watched, complaints = top.communicate(timeout=60)
    assert (bench.returncode, top.returncode, complaints) == (0, 0, ""), err
    said = "2 of 2 problems; problem from 'asked', answer from 'right', level from 'difficulty'"
    assert said in " ".join(err.split())
    last = watched.splitlines()[-1]
    assert last.startswith(f"{folder}: finished, 2/2, accuracy ")
    assert f"{summary(folder)['generated_tokens']:,} tokens" in last
    assert "\x1b" not in out + err + watched
