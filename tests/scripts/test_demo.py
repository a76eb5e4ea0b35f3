"""What the demo says of its runs, and that it runs from nothing."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from scripts import demo
from scripts.programs import ROOT, command

from tts.runs.groups import read_members
from tts.runs.summary import Summary, read_summary

RECORDED = ROOT / "tests" / "golden" / "folders" / "batched" / "summary.json"


def results(lockstep: list[float], decoupled: list[float], **changes: object) -> demo.Results:
    """Runs that took so many seconds, with another accuracy each."""
    some = Summary.of_json(json.loads(RECORDED.read_text(encoding="utf-8")))
    shares = {"greedy": 0.425, "majority": 0.55, "search": 0.8}
    times = {"lockstep": lockstep, "decoupled": decoupled}
    rounds = {
        name: [replace(some, problems=12, wall_s=wall) for wall in walls]
        for name, walls in times.items()
    }
    rounds["decoupled"][0] = replace(rounds["decoupled"][0], **changes)
    return demo.Results(
        {name: replace(some, accuracy=share) for name, share in shares.items()}, rounds
    )


def test_each_result_is_a_sentence_and_fits_a_terminal() -> None:
    lines = demo.said(results([3.0, 3.2, 3.1], [2.0, 2.1, 2.2]), 40, 0)
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 12
    text = " ".join(lines)
    assert "Search with the verifier: 80% for 55% by majority vote" in text
    assert "the same trees; decoupled is 1.5 times as fast as lockstep, 1.4 to 1.6" in text


def test_no_schedule_is_called_faster_if_rounds_contradict_each_other() -> None:
    said = demo.schedules(results([3.0, 2.0, 3.0], [2.1, 1.9, 2.0]))
    assert "the same trees; which is faster, these rounds do not tell" in said
    assert "times as fast" not in said


def test_trees_that_differ_are_not_passed_over() -> None:
    assert "different trees" in demo.schedules(results([3.0], [2.0], tree_digest="0" * 16))


@pytest.mark.slow
@pytest.mark.server
def test_the_demo_needs_nothing_but_its_checkpoints(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        command("demo", "--problems", 2, "--out", out),
        env={**os.environ, "TTS_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Building the generator and verifier of demo") == 1
    assert "2 held-out problems" in done.stdout
    assert f"tts report {out} --open" in done.stdout
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80
    assert [member.folder for member in read_members(out)] == ["greedy", "majority", "search"]
    digests = {read_summary(folder).tree_digest for folder in (out / "rounds").iterdir()}
    assert digests == {read_summary(out / "search").tree_digest}
    assert len(list((out / "rounds").iterdir())) == 2 * demo.ROUNDS
