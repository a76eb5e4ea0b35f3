"""Paths below a folder that another user has closed: a sentence, never a bug."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.forks import said_by_a_stranger

from tts.base import paths, user_paths
from tts.base.errors import ConfigError, TtsError
from tts.base.user_paths import is_closed, is_folder, is_there
from tts.build.spec import load_deployment
from tts.datasets.load import load_problems
from tts.lab.study.folder import is_study
from tts.lab.tuning.tune import read_fits
from tts.runs.folder import has_begun, has_finished, locked, refuse_begun
from tts.runs.groups import runs_in
from tts.runs.replay import open_recording
from tts.session.plan import findable
from tts.session.run import unused_folder


@pytest.fixture
def closed():
    """A folder that nobody but its owner may enter, in one that all may."""
    above = Path(tempfile.mkdtemp())
    above.chmod(0o755)
    folder = above / "closed"
    folder.mkdir(0o700)
    yield folder
    shutil.rmtree(above)


def refused(call, *arguments):
    try:
        return f"not refused: {call(*arguments)}"
    except TtsError as error:
        return error.message


def lock(folder):
    with locked(folder):
        pass


@pytest.mark.parametrize(
    "call",
    [
        is_there,
        is_folder,
        has_begun,
        has_finished,
        refuse_begun,
        lock,
        is_study,
        read_fits,
        open_recording,
        runs_in,
        lambda path: load_problems(str(path)),
        lambda path: load_deployment(str(path)),
    ],
)
def test_what_asks_for_a_path_there_names_the_closed_folder(closed, call):
    refused(call, closed / "run")  # everything is imported
    said = said_by_a_stranger(lambda: refused(call, closed / "run"))
    assert f"cannot be looked at: you may not enter {closed}." in said


def test_the_outermost_closed_folder_is_named(closed):
    (closed / "inner").mkdir(0o700)
    said = said_by_a_stranger(lambda: refused(is_there, closed / "inner" / "run"))
    assert said.endswith(f"you may not enter {closed}.")


def test_a_checkout_of_another_user_has_no_place_for_runs(closed, monkeypatch):
    monkeypatch.setattr(paths, "runs_dir", lambda: closed)
    assert f"you may not enter {closed}" in said_by_a_stranger(lambda: refused(unused_folder, "x"))


def test_among_runs_those_of_others_are_passed_over(closed):
    (closed / "run.json").write_text("{}")
    mine = closed.parent / "mine"
    mine.mkdir()
    assert said_by_a_stranger(lambda: [is_closed(closed), is_closed(mine)]) == "[True, False]"


def test_a_name_that_may_be_a_bundled_one_stays_a_name(closed):
    assert said_by_a_stranger(lambda: findable(closed / "x.yaml")) == str(closed / "x.yaml")


def test_what_is_there_and_what_is_not(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    there = [name for name in ("", "file", "nothing", "dangling") if is_there(tmp_path / name)]
    assert there == ["", "file"]
    assert not is_there(tmp_path / "file" / "below")
    assert [name for name in ("", "file", "no") if is_folder(tmp_path / name)] == [""]


@pytest.mark.parametrize(("name", "why"), [("x" * 300, "too long"), ("a\0b", "null")])
def test_what_can_be_no_path_is_said(tmp_path, name, why):
    with pytest.raises(ConfigError, match=why):
        is_there(tmp_path / name)


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "_IN_CHECKOUT", False)
    for name in ("HOME", "TTS_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # no entry in passwd
    with pytest.raises(ConfigError, match="This user has no home folder") as caught:
        paths.home()
    assert "TTS_HOME" in (caught.value.hint or "")
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    assert paths.home() == tmp_path
    user_paths.mark("engines", "x")  # without a cache nothing is kept, and all is well
    assert not user_paths.is_marked("engines", "x")
