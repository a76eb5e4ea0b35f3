"""What a growing log says of a run: at its end what the summary says, and in little memory."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.driver.test_driver import CONFIGS
from tests.runs.replay.recordings import FEW, config_of, recorded_run

from tts.reports.live_run import RECENT, WINDOW_S, LiveNumbers
from tts.runs.config import RunConfig, parse_config
from tts.runs.events import Finished, Generated, Idle, ProblemSolved, ProblemStarted, Session
from tts.runs.folder import CONFIG
from tts.runs.log import read_events
from tts.runs.statistics import wilson
from tts.runs.summary import summarise

V1_RUN = Path(__file__).parents[1] / "runs" / "v1_run"
CONFIG_OF_TEN = RunConfig(problem_ids=list(map(str, range(10))), vote="best")


def numbers_of(events, config=CONFIG_OF_TEN):
    numbers = LiveNumbers(config)
    for event in events:
        numbers.add(event)
    return numbers


def started(problem, t):
    return ProblemStarted(t=t, problem=problem)


def solved(problem, t, right=True):
    return ProblemSolved(
        t=t,
        problem=problem,
        answers={"best": "7"},
        correct=None if right is None else {"best": right},
        any_correct=right,
        tree_digest="",
        level=2,
    )


def generated(t, tokens=100, in_flight=(3, 1), problem="a"):
    return Generated(
        t=t,
        problem=problem,
        sent=t - 0.5,
        done=t,
        prompt_tokens=5,
        in_flight=in_flight,
        node=(0,),
        kind="main",
        tokens=tokens,
        thoughts=(),
    )


def agrees(numbers, summary):
    assert numbers.done == summary["problems"]
    assert numbers.accuracy[0] == pytest.approx(summary["accuracy"], abs=1e-4)
    assert numbers.accuracy[1:] == wilson(numbers.accuracy[0], numbers.judged)
    assert numbers.wall_s == pytest.approx(summary["wall_s"], abs=1e-3)
    assert numbers.generated_tokens == summary["generated_tokens"]
    assert numbers.run.sessions == summary["sessions"]
    speculation = summary["speculation"]
    assert numbers.speculation.sent == speculation["sent"]
    assert numbers.speculation.used == speculation["used"]


def test_at_the_end_of_a_run_they_are_those_of_its_summary():
    config = json.loads((V1_RUN / CONFIG).read_text())
    asked = parse_config(config, V1_RUN)
    numbers = numbers_of(read_events(V1_RUN), asked)
    agrees(numbers, summarise(asked, read_events(V1_RUN)))
    assert numbers.run.finished
    assert numbers.running == 0
    assert [problem.id for problem in numbers.recent] != []


@FEW
@given(st.integers(0, 2**30))
def test_of_a_scripted_run_too_whatever_is_read_of_it_so_far(tiny_deployment, tmp_path, cut):
    run, _ = recorded_run(tiny_deployment, tmp_path / "run")
    config = config_of(tiny_deployment, CONFIGS[0])
    some = run.events[: cut % len(run.events)]
    asked = parse_config(config, V1_RUN)
    numbers, summary = numbers_of(some, asked), summarise(asked, some)
    assert numbers.done == summary["problems"]
    assert numbers.generated_tokens == summary["generated_tokens"]
    assert numbers.wall_s == pytest.approx(summary["wall_s"], abs=1e-3)


def test_rates_and_loads_are_those_of_the_last_seconds():
    events = [generated(t, tokens=60, in_flight=(4, 2)) for t in range(1, 101)]
    events += [Idle(t=100, engine="verifier", since=20, until=85, why="dependency")]
    numbers = numbers_of([Session(t=0, time=""), *events])
    assert numbers.tokens_per_s("generator") == pytest.approx(60, rel=0.05)
    assert numbers.tokens_per_s("verifier") == 0
    assert (numbers.in_flight("generator"), numbers.in_flight("verifier")) == (4, 2)
    assert numbers.busy("generator") == 1
    assert numbers.busy("verifier") == pytest.approx(1 - 15 / WINDOW_S)  # idle from 70 to 85
    assert numbers.in_flight_by_second("generator", 3) == [4, 4, 0]


def test_the_time_left_follows_the_problems_of_this_session():
    session = Session(t=0, time="")
    numbers = numbers_of([session, started("a", 0), solved("a", 1000), session, started("b", 0)])
    assert numbers.left_s is None
    for name, t in (("b", 2.0), ("c", 4.0)):
        numbers.add(solved(name, t))
    assert numbers.left_s == pytest.approx(7 * 2.0)
    assert numbers.wall_s == 1004
    numbers.add(Finished(t=4))
    assert numbers.left_s is None


def test_the_pace_is_that_of_the_last_hundred_problems():
    session = Session(t=0, time="")
    begun = [started(str(number), 0) for number in range(103)]
    slow = [solved("0", 1000.0), solved("1", 1001.0)]
    numbers = numbers_of([session, *begun, *slow])
    for number in range(2, 102):
        numbers.add(solved(str(number), 1000.0 + number))
    numbers.total = 202
    assert numbers.left_s == pytest.approx(100 * 1.0)


def test_a_problem_counts_once_and_what_was_running_when_a_run_died_runs_no_more():
    session = Session(t=0, time="")
    numbers = numbers_of([session, started("a", 1), started("b", 1), solved("a", 3, right=None)])
    assert (numbers.done, numbers.judged, numbers.running) == (1, 0, 1)
    assert numbers.accuracy is None
    for event in (session, solved("a", 4), started("b", 1), generated(2.5, 7, problem="b")):
        numbers.add(event)
    assert (numbers.done, numbers.running) == (1, 1)
    numbers.add(solved("b", 3.0, right=False))
    newest = numbers.recent[-1]
    assert (newest.id, newest.tokens, newest.seconds, newest.correct) == ("b", 7, 2.0, False)


@given(st.lists(st.floats(0, 1e18), max_size=8))
def test_no_time_that_a_log_may_hold_makes_them_hang_or_grow(times):
    numbers = LiveNumbers(CONFIG_OF_TEN)
    for t in times:
        numbers.add(Idle(t=t, engine="generator", since=0, until=1e300, why="budget"))
        numbers.add(generated(t + 1))
    assert len(numbers._seconds) <= WINDOW_S + 4


def test_ten_thousand_problems_take_little_memory():
    numbers = LiveNumbers(RunConfig(problem_ids=list(map(str, range(10_000))), vote="best"))
    for problem in range(10_000):
        t = problem / 10
        numbers.add(started(str(problem), t))
        for part in range(3):
            numbers.add(generated(t + part / 100, problem=str(problem)))
        numbers.add(solved(str(problem), t + 0.05))
    assert numbers.done == 10_000
    assert numbers.running == 0
    assert len(numbers.recent) == RECENT
    assert len(numbers._seconds) <= WINDOW_S + 4
    assert sum(map(sys.getsizeof, numbers.run.solved)) < 1_000_000
