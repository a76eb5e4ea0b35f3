"""A home of its own for every test, and engines as a build would have left them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.checks.deployments import leave_engines

from tts.build.spec import Deployment


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def build() -> Callable[[Deployment], None]:
    """Writes engines as TensorRT-LLM would have left them, as far as they are read back."""
    return leave_engines
