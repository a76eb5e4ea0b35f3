"""What the guard does to the files of a server, and to the processes that make them."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tts.serving.command import guard

PREFIX = "tts-0123456789ab-"


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


def test_shared_memory_is_closed_to_others_and_that_of_other_servers_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(guard, "_SHARED_MEMORY", tmp_path)
    ours, theirs = tmp_path / f"{PREFIX}1", tmp_path / "tts-ba9876543210-1"
    for region in (ours, theirs):
        region.touch()
        region.chmod(0o644)
    guard.close_shared_memory(PREFIX)
    assert (mode(ours), mode(theirs)) == (0o600, 0o644)
    guard.remove_shared_memory(PREFIX)
    assert not ours.exists()
    assert theirs.exists()


WIDENS = """
import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600)
os.fchmod(file, 0o644)
os.write(file, b"all else works")
os.chmod(sys.argv[2], 0o644)
"""


@pytest.mark.skipif(os.uname().machine not in guard._FCHMOD, reason="for two kinds of machines")
@pytest.mark.parametrize(("before", "open_to_others"), [(guard._keep_umask, 0o600), (None, 0o644)])
def test_what_boost_creates_keeps_its_mode(tmp_path: Path, before, open_to_others: int):
    """It sets the mode of its shared memory by fchmod; nothing else is forbidden."""
    region, other = tmp_path / "region", tmp_path / "other"
    other.touch(0o600)
    subprocess.run([sys.executable, "-c", WIDENS, region, other], preexec_fn=before, check=True)
    assert mode(region) == open_to_others
    assert region.read_bytes() == b"all else works"
    assert mode(other) == 0o644


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The folder of a shared server that is ready and has no user."""
    (tmp_path / guard.STATE).write_text(f'{{"mark": "{PREFIX}"}}')
    (tmp_path / guard.USERS).touch()
    return tmp_path


def test_a_server_is_used_while_somebody_holds_its_lock(shared: Path):
    with (shared / guard.USERS).open() as user:
        fcntl.flock(user, fcntl.LOCK_SH)
        assert guard._is_used(shared, PREFIX)
    assert not guard._is_used(shared, PREFIX)
    with (shared / guard.USERS).open() as late, pytest.raises(BlockingIOError):
        fcntl.flock(late, fcntl.LOCK_SH | fcntl.LOCK_NB)  # it is being stopped


def test_a_server_that_nobody_can_know_is_not_used_and_one_that_cannot_be_looked_at_is(
    shared: Path,
):
    assert not guard._is_used(shared, "tts-ba9876543210-")
    (shared / guard.USERS).unlink()
    assert not guard._is_used(shared, PREFIX)
    (shared / guard.STATE).unlink()
    assert not guard._is_used(shared, PREFIX)
    (shared / guard.STATE).mkdir()  # what cannot be read now is looked at again
    assert guard._is_used(shared, PREFIX)
