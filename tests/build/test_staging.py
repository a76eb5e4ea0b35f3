"""Engines appear complete or not at all, made by one builder at a time."""

import os
import resource
import shutil
import threading
import time

import pytest
from tests.build.openvino_build import build, identity, leftovers, touch_weights

from tts.base.errors import BuildError
from tts.build.builder import build_lock
from tts.build.openvino import target as openvino_target


def test_a_failure_leaves_nothing_half_built(deployment, llama, home, monkeypatch):
    (first, _) = build(deployment())
    before = identity(first)
    touch_weights(llama)

    def fail(*_, **__):
        raise BuildError("wrong numbers")

    monkeypatch.setattr(openvino_target, "verify_engine", fail)
    with pytest.raises(BuildError, match="wrong numbers"):
        build(deployment(), verify=None)
    assert leftovers(home) == []
    assert identity(first) == before


def test_ctrl_c_leaves_nothing_half_built(deployment, home, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(openvino_target, "verify_engine", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build(deployment(), verify=None)
    assert [entry.name for entry in (home / "built" / "test").iterdir()] == [".build.lock"]


@pytest.mark.parametrize("moment", ["while building", "between the renames", "after them"])
def test_leftovers_of_a_killed_build_are_cleaned(deployment, home, moment):
    (report, _) = build(deployment())
    before = identity(report)
    folder, root = report.folder, report.folder.parent
    if moment == "between the renames":
        folder.rename(root / ".generator.old")
    elif moment == "after them":
        shutil.copytree(folder, root / ".generator.old")
    if moment != "after them":
        (root / ".generator.new").mkdir()
        (root / ".generator.new" / "openvino_model.bin").write_bytes(b"half")
    (report, _) = build(deployment())
    assert (report.status, identity(report)) == ("unchanged", before)
    assert leftovers(home) == []


def test_checkpoint_changing_under_the_builder(deployment, llama, home, monkeypatch):
    monkeypatch.setattr(openvino_target, "save_model", lambda *_: touch_weights(llama))
    with pytest.raises(BuildError, match="changed while it was being read"):
        build(deployment())
    assert leftovers(home) == []


def test_a_second_builder_waits(deployment, home):
    root = home / "built" / "test"
    said = []
    with build_lock(root, print):
        thread = threading.Thread(
            target=lambda: build(deployment(), roles=["generator"], say=said.append)
        )
        thread.start()
        for _ in range(200):
            if said:
                break
            time.sleep(0.01)
        assert said == [f"Waiting for another build in {root} (process {os.getpid()})."]
        assert not (root / "generator").exists()
    thread.join(timeout=30)
    assert (root / "generator" / "manifest.json").is_file()


def test_not_enough_space(deployment, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BuildError, match=r"needs about .* MB in .*, which has 0\.0 MB free"):
        build(deployment())


@pytest.fixture
def small_files(llama):
    """Files end at 100 kB, as on a disk that fills up."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("small_files")
def test_disk_that_fills_up(deployment, home):
    with pytest.raises(BuildError, match="Cannot write engines to"):
        build(deployment())
    assert leftovers(home) == []


def test_folder_that_cannot_be_made(deployment, home):
    home.mkdir()
    (home / "built").write_text("a file, where a folder is needed")
    with pytest.raises(BuildError, match="Cannot write engines to") as caught:
        build(deployment())
    assert "TTS_HOME" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, "No space left on device"), "is full"),
        (PermissionError(13, "Permission denied", "/x/y"), "no permission to write /x/y"),
    ],
)
def test_disk_errors_are_sentences(deployment, home, monkeypatch, error, text):
    def fail(*_):
        raise error

    monkeypatch.setattr(openvino_target, "save_model", fail)
    with pytest.raises(BuildError, match=text):
        build(deployment())
    assert leftovers(home) == []
