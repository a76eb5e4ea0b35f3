"""The folder of a tune result."""

import pytest

from tts.build.errors import RunError
from tts.lab.observer import Observer
from tts.lab.tuning import tune as module
from tts.lab.tuning.tune import tune
from tts.runs.folder import CONFIG
from tts.runs.lock import locked
from tts.session import AsyncSession


@pytest.fixture(autouse=True)
def not_started(monkeypatch):
    async def start(session):
        raise AssertionError("the engines were started")

    monkeypatch.setattr(module, "require_current", lambda spec: None)
    monkeypatch.setattr(AsyncSession, "__aenter__", start)


def test_a_folder_that_another_process_works_in_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "run"):
        with locked(folder), pytest.raises(RunError, match=f"{folder} is in use by process"):
            tune("demo", out=tmp_path, observer=Observer())


def test_a_folder_that_holds_a_run_is_refused_before_any_engine_is_started(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / CONFIG).write_text("{}")
    with pytest.raises(RunError, match="already holds a run"):
        tune("demo", out=tmp_path, observer=Observer())
    with pytest.raises(RunError, match="missing required field"):
        tune("demo", run=tmp_path / "run", out=tmp_path, observer=Observer())
