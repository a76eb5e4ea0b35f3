"""What an engine records of its iterations: totals, a line each, and what is published."""

import json
from dataclasses import asdict, fields

import pytest

from tts.engines.iteration_log import StepRecorder
from tts.engines.statistics import Statistics


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only where a test says so."""
    now = [100.0]
    monkeypatch.setattr("tts.engines.iteration_log.time.monotonic", lambda: now[0])
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
