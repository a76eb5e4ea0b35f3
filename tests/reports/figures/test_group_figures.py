"""The figures of several runs side by side."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reports.figures.checks import check, check_all

from tts.reports.figures.group import at_equal_cost, cost_figure, figures_of_rows, over_n, schedules
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


@settings(max_examples=12)
@given(st.lists(ROWS, min_size=1, max_size=6))
def test_every_figure_of_any_runs_is_valid(rows):
    check_all(figures_of_rows(rows, []))


@settings(max_examples=20)
@given(st.lists(ROWS, min_size=1, max_size=8))
def test_what_is_marked_is_the_pareto_front_of_the_table(rows):
    figure = cost_figure(rows, [str(place) for place in range(len(rows))], "tokens", [])
    points = [(row["tokens"], row["accuracy"]) for row in figure.rows]
    marked = [place for place, row in enumerate(figure.rows) if row["on the front"]]
    assert [points[place] for place in pareto_front(points)] == sorted(
        points[place] for place in marked
    )


@settings(max_examples=20)
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
@settings(max_examples=20)
def test_schedules_are_compared_where_the_same_search_ran_under_two(one, other):
    figure = schedules([one, other], [])
    same = (one.strategy, one.n) == (other.strategy, other.n)
    assert (figure is not None) == (same and one.schedule != other.schedule)
    if figure:
        check(figure)


def test_without_a_second_point_there_is_no_curve():
    assert over_n([], []) is None
