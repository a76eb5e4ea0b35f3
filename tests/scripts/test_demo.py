"""The demo runs from nothing, and ends with what came of it."""

import json
import os
import subprocess

import pytest
from tests.programs import command


@pytest.mark.slow
@pytest.mark.server
def test_the_demo_needs_nothing_but_its_checkpoints(tmp_path):
    out = tmp_path / "out"
    done = subprocess.run(
        command("demo", "--problems", 2, "--rounds", 2, "--out", out),
        env={**os.environ, "TTS_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 held-out problems" in done.stdout
    assert "best of 16, by the verifier" in done.stdout
    assert "give the same trees" in done.stdout
    assert done.stderr.count("Ready: gRPC") == 1, "one start of the engines for all runs"
    *lines, report, _, _ = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert report.startswith(f"  .venv/bin/tts report {out}/* ")
    folders = [out / name for name in ("beam-search", "lockstep-1", "decoupled-2", "lockstep-2")]
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
    assert len({summary["tree_digest"] for summary in summaries}) == 1
