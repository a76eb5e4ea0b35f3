"""The iteration log: bounded, followed across rotations, and no danger to the engine."""

import json
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.engines import iteration_log
from tts.engines.iteration_log import IterationLog, IterationLogFollower, StepRecorder, rotated
from tts.engines.statistics import Statistics

COUNTS = st.integers(0, 10**9)
TIMES = st.floats(0, 1e10)
ANY = st.builds(
    Statistics,
    **{
        name: TIMES if name in ("timestamp", "monotonic", "seconds") else COUNTS
        for name in asdict(Statistics())
    },
)


@pytest.fixture
def follow():
    """Follow a log; all followers are closed at the end."""
    with ExitStack() as opened:
        yield lambda file: opened.enter_context(closing(IterationLogFollower(file)))


def written(file, *numbers):
    """Append iterations of these numbers, as an engine would that starts and stops."""
    log = IterationLog(file)
    for number in numbers:
        log.write(Statistics(number))
    log.close()


def numbers(statistics):
    return [each.iteration for each in statistics]


@given(iterations=st.lists(ANY, max_size=5))
def test_iterations_are_lines_of_json_and_come_back_as_they_were(tmp_path_factory, iterations):
    file = tmp_path_factory.mktemp("log") / "generator.jsonl"
    with closing(IterationLogFollower(file)) as follower:
        log = IterationLog(file)
        for statistics in iterations:
            log.write(statistics)
        log.close()
        assert follower.read() == iterations
    lines = file.read_text().splitlines()
    assert [json.loads(line) for line in lines] == [asdict(each) for each in iterations]


def test_what_was_there_before_is_not_read_and_nothing_is_read_twice(follow, tmp_path):
    file = tmp_path / "log"
    written(file, 1, 2)
    follower = follow(file)
    assert follower.read() == []
    written(file, 3)
    assert numbers(follower.read()) == [3]
    written(file, 1, 2)  # the engine was started again
    assert numbers(follower.read()) == [1, 2]
    assert follower.read() == []


def test_two_follow_one_log_each_on_its_own(follow, tmp_path):
    file = tmp_path / "log"
    first = follow(file)
    written(file, 1)
    second = follow(file)
    written(file, 2)
    assert (numbers(first.read()), numbers(second.read())) == ([1, 2], [2])


def test_the_log_is_bounded_and_no_rotation_is_missed(follow, tmp_path, monkeypatch):
    line = len(json.dumps(asdict(Statistics())))
    monkeypatch.setattr(iteration_log, "ROTATE_BYTES", 20 * line)
    monkeypatch.setattr(iteration_log, "_FLUSH_EVERY", 2)
    file = tmp_path / "log"
    follower, log, seen = follow(file), IterationLog(file), []
    for number in range(1, 201):
        log.write(Statistics(number))
        if number % 15 == 0:
            seen += numbers(follower.read())
    log.close()
    seen += numbers(follower.read())
    assert seen == list(range(1, 201))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 44 * line
    assert set(tmp_path.iterdir()) == {file, rotated(file)}


def test_a_line_that_is_being_written_is_read_when_it_is_whole(follow, tmp_path):
    file = tmp_path / "log"
    follower = follow(file)
    written(file, 1, 2)
    text = file.read_bytes()
    file.write_bytes(text[:-7])
    assert numbers(follower.read()) == [1]
    with file.open("ab") as rest:
        rest.write(text[-7:])
    assert numbers(follower.read()) == [2]


def test_a_line_that_a_killed_engine_has_not_ended_costs_itself_and_the_next(follow, tmp_path):
    file = tmp_path / "log"
    follower = follow(file)
    written(file, 1)
    with file.open("ab") as killed:
        killed.write(b'{"iteration": 2, "ti')
    written(file, 1, 2)
    assert numbers(follower.read()) == [1, 2]


def test_a_follower_of_another_version_takes_what_it_knows(follow, tmp_path):
    file = tmp_path / "log"
    follower = follow(file)
    file.write_text('{"iteration": 7, "of_a_later_version": 1}\n')
    assert follower.read() == [Statistics(7)]


def test_a_disk_that_refuses_ends_the_log_and_not_the_engine(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    recorder = StepRecorder(tmp_path / "file" / "log", 0.0, lambda statistics: None)
    recorder.record(active=1)
    recorder.close()
    assert recorder.current.iteration == 1
    assert "ends here" in caplog.text


def test_a_full_disk_ends_the_log_and_not_the_engine(caplog):
    recorder = StepRecorder(Path("/dev/full"), 0.0, lambda s: None)
    for _ in range(3):
        recorder.record(active=0)
    recorder.close()
    assert recorder.current.iteration == 3
    assert caplog.text.count("ends here") == 1


def test_an_engine_without_work_has_told_all_that_it_did(follow, tmp_path):
    follower = follow(tmp_path / "log")
    recorder = StepRecorder(tmp_path / "log", 1e9, lambda statistics: None)
    recorder.record(active=0)  # begins a period, in which nothing else is published
    follower.read()
    recorder.record(active=2)
    assert follower.read() == []
    recorder.record(active=0)
    assert [each.active for each in follower.read()] == [2, 0]
    recorder.close()
