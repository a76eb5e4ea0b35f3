"""Fixtures of the grading tests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.grading.sync import SyncGrader

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"


@pytest.fixture(scope="session")
def shared_lines() -> Callable[[str], list[dict[str, Any]]]:
    """Reads a JSONL file of the shared test data, which is not part of the repository."""

    def read(name: str) -> list[dict[str, Any]]:
        file = SHARED / name
        if not file.is_file():
            pytest.skip(f"shared test data is not here: {name}")
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()]

    return read


@pytest.fixture(scope="session")
def grader():
    """A grader with one worker and time for all questions of all tests."""
    with SyncGrader(workers=1, cpu_s=10, problem_cpu_s=1e4) as grader:
        yield grader
