"""Each session logs what it ran with."""

import platform

from tts.runs import log as module
from tts.runs.log import RunLog, read_events, surroundings


def test_a_session_says_versions_and_machine(tmp_path):
    with RunLog(tmp_path):
        pass
    (session,) = read_events(tmp_path)
    assert session.made_with == surroundings()
    assert session.made_with["python"] == platform.python_version()
    assert set(session.made_with) == {"tts", "python", "system", "processors"}


def test_sources_that_nobody_installed_have_no_version(monkeypatch):
    def missing(name):
        raise module.PackageNotFoundError(name)

    monkeypatch.setattr(module, "version_of", missing)
    assert surroundings()["tts"] == "unknown"
