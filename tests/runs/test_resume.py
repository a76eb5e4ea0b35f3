"""What is read back of an interrupted run."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runs.logs import SESSION, expansion, log_bytes, scoring, solved, started, texts, used
from tests.runs.recorded import RECORDED

from tts.base.errors import RunError
from tts.runs.events import Finished, ProblemSolved
from tts.runs.folder import EVENTS, SUMMARY, create_run, read_config
from tts.runs.log import RunLog, read_events
from tts.runs.resume import ResumePoint, read_resume_point, repair_log, resumed_work
from tts.search import ResumedWork, Scored, Stop, Thought


def test_a_folder_without_a_log_is_begun_anew(tmp_path):
    assert read_resume_point(tmp_path, "best") == ResumePoint({}, {})


def test_solved_problems_keep_their_verdict_and_unfinished_ones_their_work(tmp_path):
    thoughts = (*texts("x\n\n", length=2), *texts("y", stop="end"))
    create_run(tmp_path, {})
    with RunLog(tmp_path) as log:
        for name in ("right", "unknown", "open"):
            log.write(started(name, 0.0))
            log.write(expansion((0,), 0.0, 1.0, problem=name, thoughts=thoughts))
            log.write(scoring((0, 0), 1.0, 1.0, problem=name, score=0.25, cached=True))
        log.write(started("untouched", 0.0))
        log.write(solved("right", 1.0, correct={"best": True, "majority": False}))
        log.write(solved("unknown", 1.0))
    point = read_resume_point(tmp_path, "best")
    assert point.solved == {"right": True, "unknown": None}
    assert read_resume_point(tmp_path, "majority").solved["right"] is False
    assert {name: resumed_work(problem) for name, problem in point.unfinished.items()} == {
        "open": ResumedWork(
            {(0,): (Thought((1, 1), "x\n\n", Stop.STEP), Thought((1,), "y", Stop.END))},
            {(0, 0): Scored((0, 0), 0.25)},
        )
    }


def test_a_finished_run_leaves_nothing_to_do():
    point = read_resume_point(RECORDED, "weighted")
    solved = [event for event in read_events(RECORDED) if isinstance(event, ProblemSolved)]
    right = {each.problem: each.correct["weighted"] for each in solved}
    assert point == ResumePoint(right)
    assert point.solved


LINES = (RECORDED / EVENTS).read_bytes().splitlines(keepends=True)
PROBLEMS = read_config(RECORDED)["problem_ids"]
DAMAGES = (
    lambda line: b"\x00" * (len(line) - 1) + b"\n",
    lambda line: line[: len(line) // 2],  # joined with the next one
    lambda line: line[: len(line) // 2] + b"\n",
    lambda line: line.replace(b'"event":', b'"what":'),
    lambda line: line.replace(b'"problem":', b'"name":'),
    lambda line: b"[" * 100_000 + b"\n",
)


def write(folder, content):
    folder.mkdir(exist_ok=True)
    (folder / EVENTS).write_bytes(content)
    return folder


@given(st.dictionaries(st.integers(0, len(LINES) - 2), st.sampled_from(DAMAGES), max_size=4))
def test_a_repaired_log_is_what_stands_before_the_first_damage(tmp_path_factory, damages):
    damaged = [damages.get(i, bytes)(line) for i, line in enumerate(LINES)]
    folder = write(tmp_path_factory.mktemp("run"), b"".join(damaged))
    before = (folder / EVENTS).read_bytes()
    repaired = repair_log(folder, PROBLEMS)
    if not damages:
        assert repaired is None
        assert (folder / EVENTS).read_bytes() == before
        return
    assert repaired.copy.read_bytes() == before
    assert repaired.lines == min(damages)
    assert (folder / EVENTS).read_bytes() == b"".join(LINES[: min(damages)])
    assert repair_log(folder, PROBLEMS) is None


@pytest.mark.parametrize(("role", "kept"), [("verifier", {(0,)}), ("strategy", set())])
def test_what_an_earlier_file_gave_for_open_problems_is_forgotten(tmp_path, role, kept):
    def work(score):
        log.write(started("a", 0.0))
        log.write(expansion((0,), 0.0, 1.0, thoughts=texts("x")))
        log.write(scoring((0,), 1.0, 1.0, score=score, cached=True))

    def point(sha256):
        return read_resume_point(tmp_path, "best", {role: sha256}, {role: "old"})

    def open_work(found):
        return resumed_work(found.unfinished["a"]) if found.unfinished else ResumedWork()

    create_run(tmp_path, {})
    with RunLog(tmp_path) as log:
        log.write(solved("done", 1.0))
        work(0.25)
    assert (point("old").changed, set(open_work(point("old")).scores)) == ({}, {(0,)})
    found = point("new")
    assert (found.changed, set(found.solved)) == ({role: "new"}, {"done"})
    assert (set(open_work(found).thoughts), open_work(found).scores) == (kept, {})
    with RunLog(tmp_path, changed=found.changed) as log:
        work(0.75)
    found = point("new")
    assert (found.changed, open_work(found).scores[0,].score) == ({}, 0.75)
    assert point("newer").changed == {role: "newer"}


def test_what_stands_before_the_damage_is_kept_and_the_summary_goes(tmp_path):
    events = [
        SESSION,
        started("before", 0.1),
        solved("before", 1.0),
        started("a", 1.1),
        used([0], 1.5),
        b"damage\n",
        solved("a", 2.0),
        Finished(t=3.0),
    ]
    folder = write(tmp_path / "run", log_bytes(*events))
    (folder / SUMMARY).write_text("{}")
    with pytest.raises(RunError, match="line 6 is not JSON"):
        read_resume_point(folder, "best")
    repaired = repair_log(folder, ["before", "a"])
    assert "5 lines of the log stay; the log as it was: " in str(repaired)
    assert list(read_events(folder)) == events[:5]
    assert set(read_resume_point(folder, "best").solved) == {"before"}
    assert not (folder / SUMMARY).exists()


@pytest.mark.parametrize("name", ["a", "stranger"])
def test_a_second_solution_or_that_of_a_stranger_counts_as_damage(tmp_path, name):
    first = solved("a", 1.0)
    folder = write(tmp_path / "run", log_bytes(SESSION, first, solved(name, 5.0)))
    if name == "a":
        with pytest.raises(RunError, match="'a' was solved twice") as caught:
            read_resume_point(folder, "best")
        assert f"--resume {folder} --repair" in caught.value.hint
    assert repair_log(folder, ["a"]).lines == 2
    assert list(read_events(folder)) == [SESSION, first]


def test_every_repair_keeps_a_copy_of_its_own(tmp_path):
    folder = shutil.copytree(RECORDED, tmp_path / "run")
    copies = set()
    for _ in range(3):
        with (folder / EVENTS).open("ab") as log:
            log.write(b"damage\n")
        copies.add(repair_log(folder, PROBLEMS).copy.name)
    assert copies == {f"{EVENTS}.damaged{end}" for end in ("", "-2", "-3")}


def test_a_power_cut_after_a_repair_loses_neither_the_log_nor_its_copy(tmp_path, monkeypatch):
    folder = shutil.copytree(RECORDED, tmp_path / "run")
    with (folder / EVENTS).open("ab") as log:
        log.write(b"damage\n")
    synced, fsync = {}, os.fsync

    def sync(descriptor):
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        content = {entry.name for entry in path.iterdir()} if path.is_dir() else path.read_bytes()
        synced[path.stat().st_ino] = content

    monkeypatch.setattr(os, "fsync", sync)
    copy = repair_log(folder, PROBLEMS).copy
    for file in (copy, folder / EVENTS):
        assert synced.get(file.stat().st_ino) == file.read_bytes(), file
    assert synced[folder.stat().st_ino] == {entry.name for entry in folder.iterdir()}
