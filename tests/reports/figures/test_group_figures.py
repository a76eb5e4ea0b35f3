"""The figures of several runs side by side."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.reports.figures.checks import check, check_all

from tts.reports.figures.charts import tint
from tts.reports.figures.group import (
    at_equal_cost,
    cost_figure,
    figures_of_rows,
    over_n,
    schedules,
    surely_better,
)
from tts.runs.compare import Row
from tts.runs.curves import Point
from tts.runs.statistics import pareto_front

ROWS = st.builds(
    Row,
    strategy=st.sampled_from(("best-of-n", "beam-search", "mcts", "a.b[c]")),
    differs=st.just({}),
    run=st.just("runs/x"),
    deployment=st.just("demo"),
    dataset=st.just("demo"),
    schedule=st.sampled_from(("lockstep", "decoupled")),
    seed=st.just(0),
    n=st.sampled_from((1, 4, 16)),
    vote=st.just("best"),
    problems=st.integers(1, 9),
    accuracy=st.integers(0, 10).map(lambda tenths: tenths / 10),
    interval_95=st.just((0.0, 1.0)),
    pass_at_n=st.just(1.0),
    samples=st.integers(1, 9),
    generated_tokens=st.integers(0, 9_999),
    verifier_calls=st.integers(0, 9),
    wall_s=st.integers(0, 9_999).map(float),
    accuracy_by_level=st.just({}),
    accuracy_by_rule=st.just({}),
    curve=st.lists(
        st.builds(Point, st.integers(1, 64), st.just(0.5), st.just(0.5), st.just(1)), max_size=3
    ).map(tuple),
    no_curve=st.none(),
    right=st.just({}),
)


@settings(max_examples=amount(4, 12))
@given(st.lists(ROWS, min_size=1, max_size=6))
def test_every_figure_of_any_runs_is_valid(rows):
    check_all(figures_of_rows(rows, []))


@settings(max_examples=3)
@given(ROWS)
def test_runs_of_which_nothing_was_judged_are_in_no_figure(row):
    others = [replace(row, accuracy=None, interval_95=None), replace(row, problems=0)]
    assert figures_of_rows(others, []) == []
    assert figures_of_rows([*others, row], []) == figures_of_rows([row], [])


@settings(max_examples=amount(6, 20))
@given(st.lists(ROWS, min_size=1, max_size=8))
def test_on_the_front_are_runs_that_are_surely_better_than_the_cheaper_ones_there(rows):
    figure = cost_figure(rows, [str(place) for place in range(len(rows))], "tokens", [])
    points = [(row["tokens"], row["accuracy"]) for row in figure.rows]
    marked = [place for place, row in enumerate(figure.rows) if row["on the front"]]
    marked.sort(key=lambda place: points[place])
    assert set(marked) <= set(pareto_front(points))
    assert points[marked[0]][0] == min(points)[0]
    assert all(surely_better(rows[dearer], rows[cheaper]) for cheaper, dearer in pairwise(marked))


@settings(max_examples=amount(6, 20))
@given(st.lists(ROWS, min_size=1, max_size=8))
def test_within_more_a_strategy_is_never_less_right(rows):
    figure = at_equal_cost(rows, "tokens", [])
    assert (figure is None) == (len({row.strategy for row in rows}) == 1)
    for strategy in {row.strategy for row in rows} if figure else ():
        points = [(r["tokens"], r["accuracy"]) for r in figure.rows if r["strategy"] == strategy]
        assert points == sorted(points)
        best = max(row.accuracy for row in rows if row.strategy == strategy)
        assert points[-1][1] == best


@given(ROWS, ROWS)
@settings(max_examples=amount(6, 20))
def test_schedules_are_compared_where_the_same_search_ran_under_two(one, other):
    figure = schedules([one, other], [])
    same = (one.strategy, one.n) == (other.strategy, other.n)
    assert (figure is not None) == (same and one.schedule != other.schedule)
    if figure:
        check(figure)


def test_runs_of_other_questions_are_compared_in_no_figure():
    """demo with 40 problems and another dataset with 1,000 were "the same search, 40 times"."""
    demo = [
        row("mcts", 50, 0.9, asked="demo", schedule="lockstep", wall_s=1.0),
        row("rebase", 70, 0.9, asked="demo", wall_s=9.0),
    ]
    other = row("mcts", 4000, 0.4, asked="gsm8k", dataset="gsm8k", problems=100, wall_s=40.0)
    figures = figures_of_rows([*demo, other], [])
    assert figures
    assert all(figure.name.endswith("-1") for figure in figures)
    assert figures[0].title == "Accuracy against tokens: 10 problems of demo, seed 0"
    assert all("4,000" not in figure.reading for figure in figures)
    assert figures_of_rows([demo[0], other], []) == []
    check_all(figures)


def test_schedules_are_those_of_one_search():
    rows = [
        row("mcts", 1, 1.0, schedule=schedule, search=seed, seed=seed, wall_s=wall_s)
        for schedule, seed, wall_s in (("lockstep", 0, 40.0), ("decoupled", 1, 1.0))
    ]
    assert schedules(rows, []) is None
    rows.append(row("mcts", 1, 1.0, search=0, wall_s=20.0))
    assert "difference is 2 times: mcts (seed=0), n=4" in schedules(rows, []).reading


def test_a_cost_per_problem_is_over_all_that_were_solved():
    figure = cost_figure([row("a", 50, 0.1, solved=20)], ["a"], "tokens", [])
    assert figure.rows[0]["tokens"] == 25.0, "half of them had no reference"


def test_without_a_second_point_there_is_no_curve():
    assert over_n([], []) is None


def row(strategy, tokens, accuracy, high=None, **others):
    """A run of ten problems."""
    return Row(
        **{
            "strategy": strategy,
            "differs": {},
            "run": "runs/x",
            "deployment": "demo",
            "dataset": "demo",
            "schedule": "decoupled",
            "seed": 0,
            "n": 4,
            "vote": "best",
            "problems": 10,
            "accuracy": accuracy,
            "interval_95": (0.0, high or accuracy),
            "pass_at_n": 1.0,
            "samples": 1,
            "generated_tokens": 10 * tokens,
            "verifier_calls": 1,
            "wall_s": 1.0,
            "accuracy_by_level": {},
            "accuracy_by_rule": {},
            "curve": (),
            "no_curve": None,
            "right": {},
            **others,
        }
    )


def graded(right, of=10):
    return {str(place): place < right for place in range(of)}


def test_the_front_holds_only_what_the_problems_tell_apart():
    rows = [
        row("a", 50, 0.1, right=graded(1)),
        row("b", 90, 0.2, right=graded(2)),
        row("c", 95, 0.9, right=graded(9)),
    ]
    reading = cost_figure(rows, ["a", "b", "c"], "tokens", []).reading
    assert "a (10.0% (0 to 10%), 50 tokens per problem); c (90.0% (0 to 90%), 95 tok" in reading
    assert "The other 1 " in reading
    alone = cost_figure(rows[:2], ["a", "b"], "tokens", [])
    assert alone.reading.endswith("No dearer one is right more often beyond the noise.")


def test_without_the_same_problems_the_intervals_must_not_overlap():
    low = row("a", 50, 0.2, interval_95=(0.1, 0.3))
    assert surely_better(row("b", 60, 0.5, interval_95=(0.4, 0.6)), low)
    assert not surely_better(row("b", 60, 0.5, interval_95=(0.3, 0.6)), low)
    assert not surely_better(row("b", 60, 0.5, interval_95=None), low)


def test_seconds_of_single_runs_have_no_front():
    rows = [row("a", 50, 0.1, wall_s=50.0), row("b", 90, 0.9, wall_s=20.0)]
    figure = cost_figure(rows, ["a", "b"], "seconds", [])
    assert "on the front" not in figure.columns
    assert figure.reading.startswith("The fastest is also the most accurate run: b takes 2")
    assert any("no interval" in note for note in figure.notes)


def test_no_name_in_a_legend_is_cut():
    names = ["weighted-best-of-n (beam_width=4, num_iterations=40)", "b"]
    assert tint("strategy", names).to_dict()["legend"]["labelLimit"] == 0
    assert tint("strategy", names).to_dict()["legend"]["columns"] == 1
    assert tint("strategy", ["a", "b"]).to_dict()["legend"]["columns"] == 2


def test_at_equal_cost_every_strategy_is_compared():
    rows = [row("a", 50, 0.4), row("a", 60, 0.5), row("b", 931, 0.6), row("b", 2000, 0.7)]
    reading = at_equal_cost(rows, "tokens", []).reading
    assert "Within 931 tokens per problem" in reading
    assert reading.endswith("b 60.0% (0 to 60%), a 50.0% (0 to 50%).")


def test_schedules_with_other_answers_are_noticed():
    same = [row("a", 1, 1.0, schedule=name, right={"p": True}) for name in ("lockstep", "batched")]
    assert "The same problems are right" in schedules(same, []).reading
    other = [same[0], row("a", 1, 1.0, schedule="batched", right={"p": False})]
    assert "In 1 of 1 searches" in schedules(other, []).reading


def test_a_curve_is_said_with_its_interval():
    points = (Point(1, 0.5, 0.5, 4), Point(4, 0.5, 0.5, 1))
    assert "at most ±26.3 points" in over_n([row("a", 1, 0.5, curve=points)], []).reading


def test_what_a_run_takes_is_told_however_little_it_is():
    rows = [row("greedy", 100, 0.5, wall_s=0.5), row("dvts", 0, 0.6, wall_s=0.0)]
    figure = cost_figure(rows, ["a", "b"], "seconds", [])
    assert [each["seconds"] for each in figure.rows] == [0.05, 1e-4]


def fitted(strategy, right, budget, seed=0):
    return row(
        strategy,
        budget,
        right / 10,
        right=graded(right),
        seed=seed,
        budget={"budget_tokens": budget},
        tokens_per_problem=0.9 * budget,
        seconds_per_problem=0.5,
    )


def test_at_equal_cost_a_strategy_is_a_line_and_compared_with_the_best():
    rows = [
        fitted(strategy, right, budget, seed)
        for strategy, right in (("dvts", 9), ("mcts", 3), ("rebase", 8))
        for budget in (500, 1000)
        for seed in (0, 1)
    ]
    figures = {figure.name: figure for figure in figures_of_rows(rows, ["a note"])}
    assert {"accuracy-over-tokens", "accuracy-over-seconds"} <= figures.keys()
    assert "accuracy-at-equal-tokens" not in figures
    figure = figures["accuracy-over-tokens"]
    check(figure)
    assert len(figure.rows) == 6
    assert figure.rows[0] == {
        "strategy": "dvts",
        "n": "4",
        "budget, tokens": 500,
        "tokens": 450.0,
        "accuracy": 0.9,
        "low": 0.5958,
        "high": 0.9821,
        "to the best": 0.0,
        "from": 0.0,
        "up to": 0.0,
    }
    lost = next(each for each in figure.rows if each["strategy"] == "mcts")
    assert lost["to the best"] == -0.6
    assert lost["up to"] < 0
    assert "At 500 tokens dvts has most right, 90.0%; not told apart from it: rebase." in (
        figure.reading
    )
    assert "mcts" not in figure.reading
    assert "Means over 2 seeds." in figure.notes


def test_one_strategy_alone_has_no_figure_at_equal_cost():
    names = {figure.name for figure in figures_of_rows([fitted("dvts", 9, 500)], [])}
    assert "accuracy-over-tokens" not in names
