"""Every command of a test has a home of its own."""

import pytest

from tts.base import paths


@pytest.fixture(autouse=True)
def home(home):
    return home


@pytest.fixture
def unplanned(tmp_path):
    """A deployment of one's own, whose generator's pool is not planned yet."""
    bundled = paths.deployments_dir()
    text = (bundled / "demo-gpu.yaml").read_text()
    text = text.replace("../checkpoints", str(bundled.parent / "checkpoints"))
    file = tmp_path / "own.yaml"
    file.write_text(text.replace("tokens: 40960", "tokens: 320  "))
    return file
