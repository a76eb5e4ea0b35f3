"""Numbers of the report."""

from dataclasses import replace

import pytest
from rich.console import Console
from tests.runs.logs import SESSION, expansion, idle, scoring, solved
from tests.runs.runs import row_of, write_run

from tts.reports.comparison import tables
from tts.reports.runs import accuracy_cell, engine_use, work_lines
from tts.runs.compare import read_rows
from tts.runs.config import RunConfig
from tts.runs.summary import Summary, summarise
from tts.strategies.catalog import find_strategy

CONFIG = {
    "deployment": "tiny",
    "dataset": "demo",
    "seed": 0,
    "strategy": "best-of-n",
    "schedule": "decoupled",
    "vote": "weighted",
    "parameters": {"n": 4},
}


def summary_of(events):
    return summarise(RunConfig(**CONFIG), events)


def shown(renderable):
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


@pytest.mark.parametrize(
    ("share", "problems", "cell"),
    [(0.5, 100, "50.0% ±9.6"), (1.0, 10, "100.0% ±13.9"), (None, 10, "-"), (0.5, 0, "-")],
)
def test_accuracy_comes_with_its_interval(share, problems, cell):
    assert accuracy_cell(share, problems) == cell


def test_the_use_of_engines_fits_the_terminal_and_tells_idle_times():
    events = [SESSION, expansion([0], 0.0, 4.0, tokens=10), scoring([0], 6.0, 8.0, load=40)]
    waited = [
        idle("verifier", 0.0, 6.0, "dependency"),
        idle("verifier", 7.0, 7.0, "budget"),
        idle("verifier", 7.0, 7.0, "no work"),
    ]
    plain, full = (shown(engine_use(summary_of(log), log)) for log in (events, [*events, *waited]))
    assert "idle" not in plain
    for part in ("75.0%", "dependency", "budget", " 0.5 ", " 10.0 "):  # of 8 s: 4; 40 tokens for 2
        assert part in full
    assert max(map(len, full.splitlines())) <= 100


def test_the_use_of_engines_needs_no_idle_times_in_the_summary():
    events = [SESSION, expansion([0], 0.0, 4.0)]
    table = shown(engine_use(replace(summary_of(events), wall_s=8.0, idle_s=None), events))
    assert " 0.5 " in table
    assert "idle" not in table
    assert " - " in shown(engine_use(summary_of([]), []))


def test_the_work_of_a_run_in_words():
    nothing = summary_of([])
    assert work_lines(nothing) == ["- problems and - generated tokens per second"]
    some = dict(nothing) | {
        "latency_s": {"median": 1.5, "p95": 3.0},
        "speculation": {"sent": 8, "answered": 6, "used": 4, "hit_rate": 0.5}
        | {"cancelled": {"pruned": 2}},
        "waste": {"share": 0.1, "unused_tokens": 60, "cancelled_tokens_estimated": 40},
    }
    assert work_lines(Summary.of_json(some))[1:] == [
        "time of one problem: median 1.50 s, p95 3.00 s",
        "speculative expansions: 8 sent, 4 used (50.0%); cancelled: 2 pruned",
        "wasted generation: 10.0% of all tokens: 60 never used, and about 40 (estimated) in "
        "cancelled requests",
    ]


def test_runs_of_one_search_are_compared_whatever_its_parameters_are(tiny_deployment):
    auto = find_strategy("auto").configure({}, context=64)
    rows = [
        row_of("auto", schedule=schedule, parameters=auto.to_json(), wall_s=wall_s, run=schedule)
        for schedule, wall_s in (("lockstep", 20.0), ("decoupled", 10.0))
    ]
    text = shown(tables(rows))
    assert "trees identical (auto: lockstep and decoupled): yes" in text
    assert "2.00x" in text


def test_intervals_are_about_the_problems_with_a_reference(tmp_path):
    """They were about all that were solved, and so too narrow."""
    known = [solved(str(place), 1.0, correct={"best": True}) for place in range(4)]
    other = [solved(str(place), 1.0, correct=None) for place in range(4, 40)]
    rows, _ = read_rows(write_run(tmp_path / "run", [SESSION, *known, *other]))
    text = shown(tables(rows))
    assert text.count("100.0% ±24.5") == 2
    assert "±4.4" not in text
