"""Progress and what is waited for, on a terminal and in a pipe."""

import io
import re
import threading

import pytest
from rich.console import Console

from tts.engines.loading import Stage
from tts.lab.observer import Observer
from tts.reports import progress
from tts.reports.progress import PLAIN_INTERVAL_S, Bars, BuildLines, ProgressLines
from tts.serving.server.triton_log import Loading
from tts.session.result import RunProgress


def console(terminal, width=120):
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, highlight=False)


def loading(seconds):
    generator = Stage("generator", "reading weights", 0.376)
    return Loading(seconds, {"generator": generator, "verifier": Stage("prm_engine", "compiling")})


LINE = "generator: reading weights 38%, verifier: compiling ({} s)"


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_pipe_is_told_how_far_a_run_is_every_ten_seconds(clock):
    out = console(terminal=False)
    observer: Observer = Bars(out)
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


def test_a_terminal_is_shown_a_bar_for_each_run_and_engine_and_none_is_left_at_the_end():
    out = console(terminal=True)
    with Bars(out) as observer:
        for title in ("1/2 [greedy]", "2/2 dvts"):
            run = RunProgress(4)
            observer.began(run, title)
            run.count(None)
            observer.changed()
            observer.ended()
        for role, unit in (("generator", "requests"), ("verifier", "tokens")):
            observer.measuring(role, unit, 6)
            observer.at(4096, 0)
            observer.at(8192, 1)
    text = out.file.getvalue()
    counts = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert "2/6" in counts
    assert "3/6" not in counts  # each engine's measurements are counted from the first
    for words in ("1/2 [greedy]", "2/2 dvts", "1/4", "in flight"):
        assert words in counts
    assert "8,192 tokens in flight, round 1 of 5" in text
    show_cursor, hide_cursor = "\x1b[?25h", "\x1b[?25l"
    assert text.rindex(show_cursor) > text.rindex(hide_cursor)


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_terminal_is_shown_count_time_and_state_whole(width):
    out = console(terminal=True, width=width)
    observer = Bars(out)
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
    observer = Bars(out)
    observer.began(RunProgress(4), "greedy")
    observer.changed()
    clear = "\x1b[2J"
    assert clear not in out.file.getvalue()
    out.width = 60
    observer.changed()
    observer.changed()
    observer.ended()
    assert out.file.getvalue().count(clear) == 1


def test_a_pipe_is_told_every_ten_seconds_and_not_at_all_of_a_quick_start(clock):
    out = console(terminal=False)
    with ProgressLines(out) as lines:
        lines.say("Starting")
        for tick in range(9):
            clock[0] = tick * PLAIN_INTERVAL_S / 4
            lines.loading(loading(clock[0]))
        lines.say("Ready")
        lines.loading(loading(1.0))
    assert out.file.getvalue().splitlines() == [
        "Starting",
        LINE.format(10),
        LINE.format(20),
        "Ready",
    ]


def test_a_terminal_shows_one_line_that_is_gone_before_the_next_and_at_an_error():
    for ends_by in (None, KeyError):
        out = console(terminal=True)
        try:
            with ProgressLines(out) as lines:
                lines.loading(loading(1.2))
                lines.loading(loading(2.2))
                if ends_by:
                    raise ends_by
                lines.say("Ready")
        except KeyError:
            pass
        text = out.file.getvalue()
        assert LINE.format(1) in text
        assert LINE.format(2) in text
        assert text.index(LINE.format(2)) < text.rindex("\x1b[2K"), "it is erased"
        assert text.count("\x1b[?25h") == text.count("\x1b[?25l") == 1, "the cursor is back"


def test_a_narrow_terminal_cuts_the_line_rather_than_wrapping_it():
    out = console(terminal=True, width=30)
    with ProgressLines(out) as lines:
        lines.loading(loading(1.0))
    assert "…" in out.file.getvalue()


def test_a_build_shows_for_how_long_its_stage_has_taken(monkeypatch):
    shown = threading.Event()

    class Watched(BuildLines):
        def _wait(self, text):
            super()._wait(text)
            if text.startswith("verifier: comparing"):
                shown.set()

    monkeypatch.setattr(progress, "_TICK_S", 0.01)
    out = console(terminal=True)
    with Watched(out) as lines:
        lines.say("verifier: comparing with transformers")
        assert shown.wait(10)
    text = out.file.getvalue()
    assert "verifier: comparing with transformers (0 s)" in text
    assert text.count("\x1b[?25h") == text.count("\x1b[?25l")
    assert not any(thread.name == "tts build lines" for thread in threading.enumerate())
