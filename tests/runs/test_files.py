"""Files that are whole or not there."""

import errno
import os

import pytest

from tts.runs.files import write_whole


def test_a_file_that_does_not_fit_leaves_the_old_one_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "file"
    write_whole(file, "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, "new")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]
