"""A machine that goes down: only what was synced is still there, and the run goes on from it."""

import os
from collections import Counter
from pathlib import Path

import pytest
from tests.session.test_runs import PROBLEMS

from tts.runs.folder import CONFIG, SUMMARY, read_problems
from tts.runs.resume import read_resume_point
from tts.session.solver import Outbox


class LosingDisk:
    """What a disk holds that keeps a file's bytes and a folder's names when they are synced only.

    It watches fsync. `cuts` are copies of the folder as the disk has it after each.
    """

    def __init__(self, folder, cuts):
        self.folder, self.cuts, self.count = folder, cuts, 0
        self.bytes, self.names = {}, {}
        self.fsync = os.fsync

    def sync(self, descriptor):
        self.fsync(descriptor)
        about = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self.names[path] = {entry.name: entry.stat().st_ino for entry in path.iterdir()}
        else:
            self.bytes[about.st_ino] = path.read_bytes()
        self.cut(self.cuts / str(self.count))
        self.count += 1

    def cut(self, into):
        """The run folder as it is after a power cut, in the folder `into`."""
        into.mkdir(parents=True)
        known = self.names.get(self.folder.parent, {})
        if self.folder.name not in known:
            return
        for name, inode in self.names.get(self.folder, {}).items():
            (into / name).write_bytes(self.bytes.get(inode, b""))


@pytest.fixture
def disk(tmp_path, monkeypatch):
    disk = LosingDisk(tmp_path / "runs" / "mine", tmp_path / "cuts")
    monkeypatch.setattr(os, "fsync", disk.sync)
    return disk


def test_a_result_that_is_handed_over_is_on_disk(session, disk, tmp_path, monkeypatch):
    put, handed = Outbox.put, []

    def cut_and_put(outbox, result):  # the run may be far ahead of whoever takes its results
        handed.append(result.problem.id)
        disk.cut(tmp_path / f"handed-{len(handed)}")
        put(outbox, result)

    monkeypatch.setattr(Outbox, "put", cut_and_put)
    assert len(list(session.solve_many(PROBLEMS, n=4, out=disk.folder))) == len(handed)
    for count in range(1, len(handed) + 1):
        point = read_resume_point(tmp_path / f"handed-{count}", "weighted")
        assert set(handed[:count]) <= point.solved.keys()


def test_a_run_goes_on_to_the_same_trees_from_every_power_cut(session, disk, tmp_path, monkeypatch):
    whole = {
        r.problem.id: r.tree_digest for r in session.solve_many(PROBLEMS, n=4, out=disk.folder)
    }
    monkeypatch.setattr(os, "fsync", disk.fsync)
    ends = Counter()
    assert disk.count >= len(PROBLEMS)
    for number in range(disk.count):
        folder = disk.cuts / str(number)
        began = (folder / CONFIG).exists()
        ends["finished" if (folder / SUMMARY).exists() else "begun" if began else "nothing"] += 1
        if began:
            assert len(read_problems(folder)) == len(PROBLEMS)
        again = session.solve_many(PROBLEMS, n=4, out=folder, resume=began)
        assert {r.problem.id: r.tree_digest for r in again} == whole
    assert ends.keys() == {"nothing", "begun", "finished"}
