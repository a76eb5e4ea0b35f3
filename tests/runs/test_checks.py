"""Parts of a run folder that contradict one another are refused, and the log decides."""

import json
import re
import shutil
from zlib import crc32

import pytest
from tests.runs.logs import solved, started, used

from tts.base.errors import RunDamaged, RunError
from tts.runs.checks import check_run, drop_stale_summary, read_summary_fields, write_summary
from tts.runs.events import Finished, ProblemSolved
from tts.runs.folder import CONFIG, EVENTS, PROBLEMS, SUMMARY, create_run
from tts.runs.log import RunLog, read_events


def make_run(folder, *names, summary=True):
    """A run in which these problems are solved, each in three events."""
    create_run(folder, {"problem_ids": list(names)})
    with RunLog(folder) as log:
        for name in names:
            for event in (started(name, 1.0), used([0], 1.5, name), right(name)):
                log.write(event)
        log.write(Finished(t=3.0))
    if summary:
        write_summary(folder, {"problems": len(names)})
    return folder


def right(name):
    return solved(name, 2.0, correct={"best": True})


def edit_log(folder, change):
    log = folder / EVENTS
    lines = log.read_bytes().splitlines(keepends=True)
    change(lines)
    log.write_bytes(b"".join(lines))


def replace_in(line, old, new):
    def change(lines):
        assert old in lines[line]
        lines[line] = lines[line].replace(old, new)

    return change


def swap(lines):
    lines[2], lines[5] = lines[5], lines[2]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (replace_in(6, b'"best":true', b'"best":false'), "7 (problem 'b')"),
        (replace_in(2, b"1.5", b"1.6"), "3 (problem 'a')"),
        (lambda lines: lines.pop(2), "3 (problem 'a')"),
        (lambda lines: lines.insert(2, lines[2]), "4 (problem 'a')"),
        (swap, "3 (problem 'b')"),
        (replace_in(4, b'"crc":', b'"csc":'), "5 (problem 'b')"),
        (replace_in(0, b'"crc":', b'"csc":'), "1"),
    ],
)
def test_a_valid_line_that_is_not_the_one_that_was_written_is_named(tmp_path, change, named):
    folder = make_run(tmp_path / "run", "a", "b", summary=False)
    edit_log(folder, change)
    with pytest.raises(RunDamaged) as caught:
        list(read_events(folder))
    assert f"{EVENTS}, line {named} does not match its checksum" in caught.value.message
    assert f"tts bench --resume {folder} --repair" in caught.value.hint


def test_a_summary_stands_for_the_end_of_the_log_and_its_own_fields(tmp_path):
    folder = make_run(tmp_path / "run", "a")
    summary = json.loads((folder / SUMMARY).read_text())
    last = crc32(b'{"problems":1}', int((folder / EVENTS).read_bytes()[-11:-3], 16))
    assert summary == {"problems": 1, "crc": f"{last:08x}"}
    check_run(folder)
    assert read_summary_fields(folder) == {"problems": 1}


def test_checksums_go_on_when_a_run_is_continued_behind_a_torn_line(tmp_path):
    folder = make_run(tmp_path / "run", "a", summary=False)
    with (folder / EVENTS).open("ab") as log:
        log.write(b'{"event":"used","t":3.5,"prob')
    with RunLog(folder) as log:
        log.write(right("b"))
    assert [e.problem for e in read_events(folder) if isinstance(e, ProblemSolved)] == ["a", "b"]
    edit_log(folder, lambda lines: lines.pop(4))  # the last one of the first session
    with pytest.raises(RunDamaged, match="line 5 does not match"):
        list(read_events(folder))


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        (SUMMARY, lambda text: text.replace("1", "2", 1), "does not fit the run's log"),
        (SUMMARY, lambda text: '{"problems": 1}', "does not fit the run's log"),
        (CONFIG, lambda text: '{"problem_ids": ["b"]}', "not the file that was there"),
        (EVENTS, lambda text: text[: text.rindex('{"event":"fin')], "does not fit the run's log"),
        (EVENTS, lambda text: "", "does not fit the run's log"),
        (PROBLEMS, lambda text: "{}", "not the file that was there"),
    ],
)
def test_what_contradicts_is_refused_by_name(tmp_path, name, damage, said):
    folder = make_run(tmp_path / "run", "a")
    file = folder / name
    file.write_text(damage(file.read_text() if file.exists() else ""))
    with pytest.raises(RunDamaged, match=said) as caught:
        check_run(folder)
    assert str(folder) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", [CONFIG, EVENTS])
def test_another_runs_file_is_refused(tmp_path, name):
    folder = make_run(tmp_path / "run", "a")
    shutil.copy(make_run(tmp_path / "other", "b") / name, folder / name)
    with pytest.raises(RunDamaged):
        check_run(folder)
    (folder / SUMMARY).unlink()
    with pytest.raises(RunDamaged, match="not the file that was there when its log began"):
        check_run(folder)


def test_a_log_that_is_gone_is_no_empty_log(tmp_path):
    folder = make_run(tmp_path / "run", "a")
    (folder / EVENTS).unlink()
    with pytest.raises(RunDamaged, match=r"events\.jsonl is missing"):
        read_summary_fields(folder)
    with pytest.raises(RunDamaged, match="Bring the log back"):
        drop_stale_summary(folder, print)


def test_a_run_that_is_continued_makes_its_summary_again_and_says_so(tmp_path):
    folder = make_run(tmp_path / "run", "a")
    said = []
    drop_stale_summary(folder, said.append)
    assert said == []
    summary = json.loads((folder / SUMMARY).read_text())
    (folder / SUMMARY).write_text(json.dumps(summary | {"problems": 9}))
    drop_stale_summary(folder, said.append)
    assert not (folder / SUMMARY).exists()
    assert re.search("summary.json .*The log is the source", said[0])


def test_a_run_that_counts_as_finished_without_all_problems_is_refused(tmp_path):
    folder = make_run(tmp_path / "run", "a", "b")
    write_summary(folder, {"problems": 1})
    with pytest.raises(RunDamaged, match="lacks the solution of 1 of its problems"):
        read_summary_fields(folder)


def open_log(folder):
    create_run(folder, {})
    log = RunLog(folder)
    log.write(right("a"))
    log.sync()
    return log


@pytest.mark.parametrize("replaced", [False, True])
def test_a_log_that_is_removed_or_replaced_under_a_run_is_saved_beside_it(tmp_path, replaced):
    with open_log(tmp_path) as log:
        (tmp_path / EVENTS).rename(tmp_path / "moved")
        if replaced:
            (tmp_path / EVENTS).write_text("another's\n")
        log.write(right("b"))
        with pytest.raises(RunDamaged, match="was removed or replaced") as caught:
            log.sync()
    assert f"tts bench --resume {tmp_path}" in caught.value.hint
    assert (tmp_path / EVENTS).exists() == replaced
    assert (tmp_path / f"{EVENTS}.saved").read_bytes() == (tmp_path / "moved").read_bytes()


@pytest.mark.parametrize("size", [0, 40, 5000])
def test_a_log_that_is_cut_or_written_to_under_a_run_ends_it(tmp_path, size):
    with open_log(tmp_path) as log:
        with (tmp_path / EVENTS).open("r+b") as other:
            other.truncate(size)
        log.write(right("b"))
        with pytest.raises(RunError, match="something else cut it off or wrote to it"):
            log.sync()


def test_a_folder_that_is_removed_under_a_run_ends_it(tmp_path):
    with open_log(tmp_path / "run") as log:
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(RunError, match="cannot be written"):
            log.sync()
