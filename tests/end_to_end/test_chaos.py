"""The short form of scripts/chaos: a few seeded faults on real runs."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "chaos"

pytestmark = pytest.mark.server


def test_runs_survive_faults_at_random_moments():
    done = subprocess.run(
        [sys.executable, SCRIPT, "--cases", "5", "--problems", "10", "--seed", "7"],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of 5 cases went wrong" in done.stdout
