"""The short form of scripts/run robustness.chaos: a few seeded faults on real runs."""

import subprocess

import pytest
from scripts.programs import command
from tests.amounts import amount

LONGEST_S = 3600
"""Less than a minute on an idle machine; the long form takes two."""

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(LONGEST_S)]


def test_runs_survive_faults_at_random_moments():
    """A frozen model; in the long form a connection, an engine, two at once, a clock, a log too."""
    first, end = amount(2, 0), amount(3, 6)
    numbers = ["--from", str(first), "--cases", str(end), "--seed", "10306"]
    options = [*numbers, "--problems", "10", "--freeze", "3"]
    done = subprocess.run(
        command("robustness.chaos", *options),
        capture_output=True,
        text=True,
        timeout=LONGEST_S - 60,  # said before pytest ends it
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"0 of {end - first} cases went wrong" in done.stdout
