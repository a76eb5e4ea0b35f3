"""What is recorded of an engine's iterations: the log, bounded and followed, and Prometheus."""

import json
from contextlib import ExitStack, closing
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.engines import statistics
from tts.engines.generate_request import EngineLimits
from tts.engines.statistics import (
    TOKEN_BUCKETS,
    IterationLog,
    IterationLogFollower,
    Statistics,
    StepRecorder,
    TokenLengths,
    gauges,
    rotated,
)

LIMITS = EngineLimits(100, 64, 32, block_size=16, blocks=40, max_active=8)


@given(st.lists(st.integers(0, 2000)))
def test_a_histogram_counts_what_lies_within_each_bound(lengths):
    histogram = TokenLengths("nv_llm_input_token_len", "total_input_tokens")
    for length in lengths:
        histogram.observe(length)
    counters = {(metric.name, metric.le): n for metric, n in histogram.counters().items()}
    name = "nv_llm_input_token_len"
    for bound in TOKEN_BUCKETS:
        assert counters.pop((f"{name}_bucket", str(bound))) == sum(n <= bound for n in lengths)
    assert counters == {
        (f"{name}_bucket", "+Inf"): len(lengths),
        (f"{name}_count", ""): len(lengths),
        (f"{name}_sum", ""): sum(lengths),
    }
    kinds = [metric.labels["response_metric_type"] for metric in histogram.counters()]
    assert set(kinds) == {"total_input_tokens"}


def test_the_gauges_say_what_the_last_iteration_did():
    last = Statistics(
        iteration=9,
        timestamp=2.5,
        active=7,
        scheduled=5,
        context_requests=2,
        generation_requests=3,
        context_tokens=60,
        blocks_used=10,
    )
    shown = {
        (each.name, *each.labels.values()): value for each, value in gauges(last, LIMITS).items()
    }
    families = {
        "request": {"active": 7, "max": 8, "scheduled": 5, "context": 2, "waiting": 2},
        "kv_cache_block": {"max": 40, "free": 30, "used": 10, "tokens_per": 16, "fraction": 0.25},
        "inflight_batcher": {
            "total_context_tokens": 60,
            "generation_requests": 3,
            "paused_requests": 0,
        },
        "general": {"timestamp": 2_500_000, "iteration_counter": 9},
    }
    assert shown == {
        (f"nv_trt_llm_{family}_metrics", kind): value
        for family, kinds in families.items()
        for kind, value in kinds.items()
    }
    ended = gauges(Statistics(active=1, scheduled=2), LIMITS)
    assert min(ended.values()) == 0, "requests that end count as scheduled"


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
    monkeypatch.setattr(statistics, "ROTATE_BYTES", 20 * line)
    monkeypatch.setattr(statistics, "_FLUSH_EVERY", 2)
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


@pytest.mark.parametrize("place", ["/dev/full", f"{__file__}/log"])
def test_a_disk_that_refuses_ends_the_log_and_not_the_engine(place, caplog):
    recorder = StepRecorder(Path(place), 0.0, lambda statistics: None)
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


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only where a test says so."""
    now = [100.0]
    monkeypatch.setattr("tts.engines.statistics.time.monotonic", lambda: now[0])
    return now


def test_an_engine_that_has_done_nothing_has_zeros_everywhere():
    assert set(asdict(StepRecorder(None, 1.0, print).current).values()) == {0}


def test_totals_add_up_and_each_iteration_is_a_line(tmp_path):
    file = tmp_path / "of" / "generator.jsonl"
    recorder = StepRecorder(file, 0.0, lambda statistics: None)
    recorder.count(requests=1, input_tokens=7, output_tokens=2)
    recorder.record(active=2, scheduled=1)
    recorder.count(requests=2, input_tokens=3)
    recorder.record(active=1, blocks_used=5)
    recorder.close()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [1, 2]
    assert [line["active"] for line in lines] == [2, 1]
    totals = [tuple(line[name] for name in line if name.endswith("_total")) for line in lines]
    assert totals == [(1, 7, 2), (3, 10, 2)]
    assert lines[-1] == asdict(recorder.current)
    assert lines[-1].keys() == {field.name for field in fields(Statistics)}


def test_a_busy_engine_is_published_once_a_period_and_then_at_rest(clock):
    published = []
    recorder = StepRecorder(None, 2.0, published.append)
    assert recorder.rest_due_s() is None, "nothing has happened that would have to be taken back"
    for seconds in (0.0, 1.9, 0.2, 1.0):
        clock[0] += seconds
        recorder.record(active=3, blocks_reserved=8)
    assert [statistics.iteration for statistics in published] == [1, 3]
    assert recorder.rest_due_s() == pytest.approx(1.0)
    clock[0] += 5.0
    assert recorder.rest_due_s() == 0.0
    recorder.count(requests=1)
    recorder.rest(blocks_used=4)
    last = published[-1]
    assert (last.iteration, last.active, last.blocks_reserved, last.blocks_used) == (4, 0, 0, 4)
    assert last.requests_total == 1
    assert recorder.rest_due_s() is None
    recorder.record(active=1)
    assert published[-1] is last, "a new period began with the rest"


@pytest.mark.parametrize(("active", "due_s"), [(0, None), (1, 0.0)])
def test_an_engine_that_publishes_each_step_is_at_rest_after_one_that_leaves_nothing(active, due_s):
    recorder = StepRecorder(None, 0.0, lambda statistics: None)
    recorder.record(active=active)
    assert recorder.rest_due_s() == due_s
