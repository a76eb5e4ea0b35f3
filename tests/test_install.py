"""The wheel installs on other Pythons, and works there without the CPU server."""

import re
import subprocess

import pytest
from scripts.programs import command

NO_INDEX = (
    "Failed to establish a new connection|name resolution|timed out|pip failed\nIt was not done"
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("python", ["python3.10", "python3.13"])
def test_a_clean_environment_runs_what_needs_no_server_and_says_what_else_needs(python):
    done = subprocess.run(
        command("check_install", python), capture_output=True, text=True, check=False
    )
    if "there is no python" in done.stderr:
        pytest.skip(f"{python} is not installed")
    if re.search(NO_INDEX, done.stderr):
        pytest.skip("no package index can be reached")
    assert (done.returncode, done.stdout) == (0, f"{python}: ok\n"), done.stdout + done.stderr
