"""A run while it goes on: on terminals of several sizes, in a pipe, with whatever models write."""

import io
import itertools
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from tests.reports.test_live_run_numbers import generated, solved, started

from tts.build.errors import RunError
from tts.reports import live_screen
from tts.reports.live_run import AT_ONCE, LiveRun, State
from tts.reports.live_screen import (
    PLAIN_INTERVAL_S,
    STALLED_S,
    RunScreen,
    WatchedBench,
    duration,
    run_line,
    run_panel,
    watch_run,
)
from tts.runs.events import Finished, Session, encode
from tts.runs.folder import CONFIG, EVENTS, SUMMARY
from tts.runs.lock import locked
from tts.session.progress import RunProgress

V1_RUN = Path(__file__).parents[1] / "runs" / "v1_run"
SIZES = [(80, 24), (120, 40), (60, 20), (40, 8), (200, 60)]


@pytest.fixture
def folder(tmp_path):
    """A run of twenty problems, of which twelve are solved."""
    folder = tmp_path / "run"
    folder.mkdir()
    config = json.loads((V1_RUN / CONFIG).read_text())
    names = [f"problem-{n}" for n in range(20)]
    (folder / CONFIG).write_text(json.dumps(config | {"problem_ids": names, "vote": "best"}))
    events = [Session(t=0, time="")]
    for n, name in enumerate(names[:12]):
        events += [started(name, n), generated(n + 0.6, problem=name)]
        events.append(solved(name, n + 0.9, right=n % 3 > 0))
    write(folder, *events)
    return folder


def write(folder, *events):
    with (folder / EVENTS).open("ab") as log:
        log.write(b"".join(encode(event) + b"\n" for event in events))


def console(terminal, size=(80, 24), **options):
    width, height = size
    return Console(
        file=io.StringIO(), force_terminal=terminal, width=width, height=height, **options
    )


def looked_at(folder):
    run = LiveRun(folder)
    run.read()
    return run


@pytest.mark.parametrize("size", SIZES)
def test_it_fits_any_screen_and_shows_the_newest_problems_first(folder, size):
    with locked(folder):
        run = looked_at(folder)
    out = console(False, size)
    out.print(run_panel(run, *size))
    lines = out.file.getvalue().splitlines()
    assert len(lines) < max(size[1], 10)
    assert all(len(line) <= size[0] for line in lines)
    text = "\n".join(lines)
    assert "12/20" in text
    assert "running" in text
    if size[1] >= 20:
        assert "accuracy 67% (39% to 86%), 1,200 tokens" in text
        assert "about 8 s left" in text
        first = lines[lines.index(next(line for line in lines if "Solved last" in line)) + 1]
        assert first.startswith("right problem-11")
    assert ("level 2" in text) is (size[0] >= 100)


def test_a_pipe_gets_plain_lines_every_few_seconds_and_no_control_codes(folder):
    clock = itertools.count(step=PLAIN_INTERVAL_S / 2)
    out = console(False)
    with locked(folder), RunScreen(out, lambda: next(clock)) as screen:
        run = LiveRun(folder)
        for n in range(6):
            screen.show(run, run.read())
            write(folder, started("problem-15", 12 + n))
    lines = out.file.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"{folder}: running, 12/20, accuracy 67% (39% to 86%), generator 3")
    assert all(line.isprintable() for line in lines)


def test_a_line_that_says_nothing_new_is_not_said_again(folder):
    clock = itertools.count(step=PLAIN_INTERVAL_S)
    out = console(False)
    with locked(folder), RunScreen(out, lambda: next(clock)) as screen:
        run = LiveRun(folder)
        for _ in range(5):
            screen.show(run, run.read())
    assert len(out.file.getvalue().splitlines()) == 1


def test_without_color_a_terminal_is_drawn_on_in_none(folder):
    run = looked_at(folder)
    colored, plain = console(True), console(True, no_color=True)
    for out in (colored, plain):
        with RunScreen(out) as screen:
            screen.show(run, new=True)
    assert "\x1b[32mright" in colored.file.getvalue()
    assert "right" in plain.file.getvalue()
    assert "\x1b[3" not in plain.file.getvalue().replace("\x1b[3A", "")


def test_after_a_resize_the_screen_is_drawn_anew_at_its_size(folder):
    run, out = looked_at(folder), console(True)
    with RunScreen(out) as screen:
        screen.show(run, new=True)
        before = len(out.file.getvalue())
        out.size = (60, 20)
        screen.show(run, new=False)
    drawn = out.file.getvalue()[before:]
    assert "\x1b[2J" in drawn
    assert "problem-11" in drawn


def test_model_text_moves_no_cursor(folder):
    write(folder, solved("evil\x1b[2J\n\u202eid", 13))
    text = io.StringIO()
    out = Console(file=text, width=120, height=40)
    out.print(run_panel(looked_at(folder), 120, 40))
    assert "\x1b" not in text.getvalue()
    assert "\u202e" not in text.getvalue()
    assert "evil [2J" in text.getvalue()


def test_every_state_of_a_run_is_said(tmp_path, folder):
    with pytest.raises(RunError, match="holds no run"):
        LiveRun(tmp_path / "nowhere")
    with locked(tmp_path / "new"):
        assert run_line(looked_at(tmp_path / "new")).endswith("new: starting")
    run = looked_at(folder)
    assert run.state is State.INTERRUPTED
    assert f"continue it with: tts bench --resume {folder}" in run_line(run)
    with locked(folder):
        run.read()
        assert run.state is State.RUNNING
        silent = io.StringIO()
        Console(file=silent, width=80).print(run_panel(run, 80, 24, STALLED_S))
        assert "nothing new in its log for 30 s" in silent.getvalue()
    write(folder, Finished(t=12))
    (folder / SUMMARY).write_text("{}")
    run.read()
    assert (
        run_line(run) == f"{folder}: finished, 12/20, accuracy 67% (39% to 86%), 1,200 tokens, 12 s"
    )


def test_a_run_that_is_resumed_repaired_or_begun_anew_is_followed(folder):
    run = looked_at(folder)
    whole = (folder / EVENTS).read_bytes()
    (folder / EVENTS).write_bytes(whole + b"{damaged\n")
    write(folder, Session(t=0, time=""), solved("problem-12", 1))
    assert run.read()
    assert (run.numbers.done, run.damaged) == (13, 1)
    whole = (folder / EVENTS).read_bytes()
    (folder / EVENTS).write_bytes(whole.replace(b"{damaged\n", b""))
    assert run.read()
    assert (run.numbers.done, run.damaged) == (13, 0)
    kept = (folder / CONFIG).read_text()
    (folder / EVENTS).unlink()
    (folder / CONFIG).write_text("{")
    run.read()
    assert "run.json cannot be read" in run.problem
    assert "run.json cannot be read" in run_line(run)
    (folder / CONFIG).write_text(kept)
    write(folder, Session(t=0, time=""))
    run.read()
    assert (run.numbers.done, run.problem) == (0, None)


def test_a_long_log_is_read_in_parts(folder):
    write(folder, *(generated(12) for _ in range(AT_ONCE)))
    run = LiveRun(folder)
    states = []
    while run.read():
        states.append(run.state)
    assert states == [State.READING, State.INTERRUPTED]
    assert run.numbers.generated_tokens == 100 * (AT_ONCE + 12)


@pytest.mark.parametrize(
    ("seconds", "text"), [(7.4, "7 s"), (59.6, "1:00"), (125, "2:05"), (10_925, "3:02:05")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_watching_ends_with_a_line_when_the_run_ends(folder, monkeypatch):
    """The run finishes between two looks, as its process would write it."""

    def end(seconds):
        write(folder, solved("problem-12", 13), Finished(t=13))
        (folder / SUMMARY).write_text("{}")

    monkeypatch.setattr(live_screen.time, "sleep", end)
    for terminal in (True, False):
        (folder / SUMMARY).unlink(missing_ok=True)
        out = console(terminal)
        with locked(folder):
            watch_run(folder, out)
        assert "finished, 13/20" in out.file.getvalue().splitlines()[-1]


def test_in_a_pipe_an_interrupted_run_is_the_end_and_on_a_terminal_ctrl_c_is(folder, monkeypatch):
    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(live_screen.time, "sleep", interrupt)
    for terminal in (True, False):
        out = console(terminal)
        watch_run(folder, out)
        assert "interrupted, 12/20" in out.file.getvalue().splitlines()[-1]


def test_a_benchmark_shows_its_own_run(folder, monkeypatch):
    now = itertools.count(step=PLAIN_INTERVAL_S)
    monkeypatch.setattr("tts.reports.live_screen.time.monotonic", lambda: next(now))
    for terminal in (True, False):
        out = console(terminal)
        with WatchedBench(out) as observer, locked(folder):
            observer.began(RunProgress(20), "problems", folder)
            observer.changed()
            observer.changed()
            observer.ended()
            observer.ended()
        assert "12/20" in out.file.getvalue()
        assert ("\x1b" in out.file.getvalue()) is terminal


def test_of_a_group_the_run_of_the_moment_is_shown(folder, tmp_path):
    group = tmp_path / "group"
    group.mkdir()
    member = {"folder": "greedy", "votes": {"greedy": "best"}, "parameters": {}}
    members = [member, member | {"folder": "dvts"}]
    (group / "group.json").write_text(json.dumps({"runs": members}))
    with locked(group):
        run = looked_at(group)
        assert run.state is State.STARTING
        shutil.copytree(folder, group / "greedy")
        run.read()
        assert (run.run, run.numbers.done) == (group / "greedy", 12)
        (group / "greedy" / SUMMARY).write_text("{}")
        shutil.copytree(folder, group / "dvts")
        write(group / "dvts", solved("problem-12", 13))
        run.read()
        assert (run.run, run.numbers.done) == (group / "dvts", 13)
        assert run.state is State.RUNNING
