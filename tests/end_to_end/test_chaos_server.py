"""Some cases of scripts/run robustness.chaos: seeded faults on real runs."""

import subprocess

import pytest
from tests.programs import command

LONGEST_S = 3600
"""Two minutes on an idle machine."""

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(LONGEST_S)]


def test_runs_survive_faults_at_random_moments():
    """A connection, an engine, a frozen model, two at once, a clock, a log."""
    options = ["--cases", "6", "--seed", "10306", "--problems", "10", "--freeze", "3"]
    done = subprocess.run(
        command("robustness.chaos", *options),
        capture_output=True,
        text=True,
        timeout=LONGEST_S - 60,  # said before pytest ends it
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of 6 cases went wrong" in done.stdout
