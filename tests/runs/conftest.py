"""A recorded run."""

import pytest
from tests.runs.replay.recordings import recorded_run, words_of


@pytest.fixture(scope="session")
def words(tiny_deployment):
    return words_of(tiny_deployment)


@pytest.fixture
def recorded(tiny_deployment, tmp_path):
    """A recorded beam search and its folder."""
    return recorded_run(tiny_deployment, tmp_path / "run")
