"""The line about what a command waits for, on a terminal and in a pipe."""

import io
import threading

import pytest
from rich.console import Console

from tts.engines.loading import Stage
from tts.reports import waiting
from tts.reports.waiting import PLAIN_INTERVAL_S, BuildLines, StartLines
from tts.serving.server.loading import Loading


def console(terminal, width=80):
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, highlight=False)


def loading(seconds):
    generator = Stage("generator", "reading weights", 0.376)
    return Loading(seconds, {"generator": generator, "verifier": Stage("prm_engine", "compiling")})


LINE = "generator: reading weights 38%, verifier: compiling ({} s)"


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    return now


def test_a_pipe_is_told_every_ten_seconds_and_not_at_all_of_a_quick_start(clock):
    out = console(terminal=False)
    with StartLines(out) as lines:
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
            with StartLines(out) as lines:
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
    with StartLines(out) as lines:
        lines.loading(loading(1.0))
    assert "…" in out.file.getvalue()


def test_a_build_shows_for_how_long_its_stage_has_taken(monkeypatch):
    shown = threading.Event()

    class Line(waiting.WaitingLine):
        def show(self, text):
            super().show(text)
            if text.startswith("verifier: comparing"):
                shown.set()

    monkeypatch.setattr(waiting, "_TICK_S", 0.01)
    monkeypatch.setattr(waiting, "WaitingLine", Line)
    out = console(terminal=True)
    with BuildLines(out) as lines:
        lines.say("verifier: comparing with transformers")
        assert shown.wait(10)
    text = out.file.getvalue()
    assert "verifier: comparing with transformers (0 s)" in text
    assert text.count("\x1b[?25h") == text.count("\x1b[?25l")
    assert not any(thread.name == "tts build lines" for thread in threading.enumerate())
