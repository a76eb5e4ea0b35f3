"""The command line with engines of its own, built once for each module."""

import pytest
from tests.end_to_end.commands import Tts


@pytest.fixture(scope="module")
def tts(tmp_path_factory):
    tts = Tts(tmp_path_factory.mktemp("home"))
    code, _, err = tts.run("build-engines", "demo", "--no-verify")
    assert code == 0, err
    yield tts
    assert tts.leftovers() == []
