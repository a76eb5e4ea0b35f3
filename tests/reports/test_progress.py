"""Progress of a benchmark and of a tuning, on a terminal and in a pipe."""

import io
import re

import pytest
from rich.console import Console

from tts.lab.observer import Observer
from tts.reports import progress
from tts.reports.progress import PLAIN_INTERVAL_S, BenchProgress, TuneProgress
from tts.session.result import RunProgress


def console(terminal, width=120):
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, highlight=False)


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_pipe_is_told_how_far_a_run_is_every_ten_seconds(clock):
    out = console(terminal=False)
    observer: Observer = BenchProgress(out)
    run = RunProgress(8)
    observer.began(run, "dvts")
    for problem in range(8):
        clock[0] += PLAIN_INTERVAL_S / 4
        run.count(problem % 2 == 0)
        run.in_flight = (3, 100)
        observer.changed()
    observer.ended()
    observer.say("[done]")
    assert out.file.getvalue().splitlines() == [
        "dvts: 4/8  accuracy 50%  in flight: generator 3, verifier 100",
        "dvts: 8/8  accuracy 50%  in flight: generator 3, verifier 100",
        "[done]",
    ]


def test_a_terminal_is_shown_a_bar_for_each_run():
    out = console(terminal=True)
    observer: Observer = BenchProgress(out)
    for title in ("1/2 greedy", "2/2 dvts"):
        run = RunProgress(4)
        observer.began(run, title)
        run.count(None)
        observer.changed()
        observer.ended()
    text = out.file.getvalue()
    for words in ("1/2 greedy", "2/2 dvts", "1/4", "accuracy -"):
        assert words in text


def test_a_terminal_is_shown_load_and_round_and_no_bar_is_left_at_the_end():
    out = console(terminal=True)
    with TuneProgress(out) as observer:
        run = RunProgress(2)
        observer.began(run, "recording")
        run.count(None)
        observer.changed()
        observer.ended()
        for role in ("generator", "verifier"):
            observer.measuring(role, 6)
            observer.at(4096, 0)
            observer.at(8192, 1)
    text = out.file.getvalue()
    counts = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert "2/6" in counts
    assert "3/6" not in counts  # each engine's measurements are counted from the first
    assert "recording" in text
    assert "8,192 tokens in flight, round 1 of 5" in text
    show_cursor, hide_cursor = "\x1b[?25h", "\x1b[?25l"
    assert text.rindex(show_cursor) > text.rindex(hide_cursor)


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_terminal_is_shown_count_time_and_state_whole(width):
    out = console(terminal=True, width=width)
    observer = BenchProgress(out)
    run = RunProgress(1_000, done=17, judged=17, right=17)
    run.in_flight = (128, 65_536)
    observer.began(run, "12/12 best-of-n and weighted-best-of-n")
    observer.changed()
    observer.ended()
    text = out.file.getvalue()
    assert "17/1000" in text
    assert "0:00:0" in text
    assert "generator 128, verifier 65536" in " ".join(text.split())
    assert "…" not in text


def test_a_terminal_of_another_size_is_cleared_before_the_next_line():
    out = console(terminal=True)
    observer = BenchProgress(out)
    observer.began(RunProgress(4), "greedy")
    observer.changed()
    clear = "\x1b[2J"
    assert clear not in out.file.getvalue()
    out.width = 60
    observer.changed()
    observer.changed()
    observer.ended()
    assert out.file.getvalue().count(clear) == 1
