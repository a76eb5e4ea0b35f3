"""The figures of runs side by side, and problem by problem."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.reports.figures.checks import check, check_all
from tests.runs.logs import whole_logs
from tests.runs.runs import CONFIG, log_of, row_of, run_of, write_run

from tts.reports.figures.charts import MOST_ROWS, log_axis, tint
from tts.reports.figures.comparison import (
    comparison_figures,
    cost_figure,
    cost_of,
    over_n,
    over_parameter,
    rows_figures,
    schedules,
)
from tts.reports.figures.pairs import pairs_figures
from tts.reports.figures.results import results_figures
from tts.reports.page.export import printed
from tts.runs.compare import Comparison, compare, differing_settings, pair_of
from tts.runs.curves import Point
from tts.runs.rows import pooled
from tts.runs.statistics import pareto_front

POINTS = st.builds(Point, st.integers(1, 64), st.just(0.5), st.just(0.5), st.just(1))
ROWS = st.builds(
    row_of,
    strategy=st.sampled_from(("best-of-n", "beam-search", "mcts", "a.b[c]")),
    schedule=st.sampled_from(("lockstep", "decoupled")),
    n=st.sampled_from((1, 4, 16)),
    accuracy=st.integers(0, 10).map(lambda tenths: tenths / 10),
    tokens=st.integers(0, 9_999).map(float),
    compute_per_problem=st.none() | st.floats(0, 1e20),
    wall_s=st.integers(0, 9_999).map(float),
    curve=st.lists(POINTS, max_size=3).map(tuple),
)


@settings(max_examples=amount(4, 12))
@given(st.lists(ROWS, min_size=1, max_size=6))
def test_every_figure_of_any_rows_is_valid(rows):
    check_all(rows_figures(rows, []))


@settings(max_examples=3)
@given(ROWS)
def test_runs_of_which_nothing_was_judged_are_in_no_figure(row):
    others = [replace(row, accuracy=None, interval_95=None), replace(row, problems=0)]
    assert rows_figures(others, []) == []
    assert rows_figures([*others, row], []) == rows_figures([row], [])


def costs(*rows, cost="tokens"):
    return cost_figure(pooled(rows), cost, [])


def test_over_compute_stand_those_whose_compute_is_known_and_a_line_at_the_baseline():
    rows = [
        row_of("mcts", compute_per_problem=2e9),
        row_of("rebase"),
        row_of("greedy", accuracy=0.8, compute_per_problem=1.5e12, name="large"),
    ]
    figure = costs(*rows, cost="compute")
    assert [(row["strategy"], row["compute"]) for row in figure.rows] == [
        ("mcts", 2e9),
        ("large", 1.5e12),
    ]
    assert [row["baseline"] for row in figure.rows] == [False, True]
    assert figure.reading.endswith(" No step up from mcts (n=4) is significant.")
    assert any("rebase" in note for note in figure.notes)
    lines = [layer for layer in figure.chart["layer"] if "transform" in layer]
    assert [layer["transform"] for layer in lines] == [[{"filter": "datum.baseline"}]]
    check(figure)
    assert costs(rows[1], cost="compute") is None


@settings(max_examples=amount(6, 20))
@given(st.lists(ROWS, min_size=1, max_size=8))
def test_on_the_front_are_runs_that_are_surely_better_than_the_cheaper_ones_there(rows):
    figure = costs(*rows)
    points = [(row["tokens"], row["accuracy"]) for row in figure.rows]
    assert points == sorted(points, key=lambda point: point[0])
    marked = [place for place, row in enumerate(figure.rows) if row["large mark"]]
    assert set(marked) <= set(pareto_front(points))
    assert points[min(marked)][0] == min(points)[0]
    known = [row for of_name in pooled(rows).values() for row in of_name]
    for cheaper, dearer in pairwise(sorted(marked, key=lambda place: points[place])):
        one, other = (
            next(r for r in known if (round(cost_of(r, "tokens"), 4), r.accuracy) == points[place])
            for place in (cheaper, dearer)
        )
        assert other.gain_over(one).p_value < 0.05


@given(ROWS, ROWS)
@settings(max_examples=amount(6, 20))
def test_schedules_are_compared_where_the_same_search_ran_under_two(one, other):
    figure = schedules([one, other], [])
    same = (one.strategy, one.n) == (other.strategy, other.n)
    differ = one.summary.schedule != other.summary.schedule
    assert (figure is not None) == (same and differ)
    if figure:
        check(figure)


def test_runs_of_other_questions_are_compared_in_no_figure():
    """demo with 40 problems and another dataset with 1,000 were "the same search, 40 times"."""
    demo = [
        row_of("mcts", 50, 0.9, schedule="lockstep", wall_s=1.0),
        row_of("rebase", 70, 0.9, wall_s=9.0),
    ]
    other = row_of("mcts", 4000, 0.4, asked="gsm8k", dataset="gsm8k", wall_s=40.0)
    figures = rows_figures([*demo, other], [])
    assert figures
    assert all("4,000" not in figure.reading for figure in figures)
    left_out = "1 of 3 were asked other questions, and left out."
    assert all(left_out in figure.notes for figure in figures)
    check_all(figures)


def test_schedules_are_those_of_one_search_and_answer_alike():
    rows = [
        row_of("mcts", 1, 1.0, schedule=schedule, seed=seed, wall_s=wall_s)
        for schedule, seed, wall_s in (("lockstep", 0, 40.0), ("decoupled", 1, 1.0))
    ]
    assert schedules(rows, []) is None
    rows.append(row_of("mcts", 1, 1.0, wall_s=20.0))
    reading = schedules(rows, []).reading
    assert "difference is 2 times: mcts (seed=0), n=4" in reading
    assert "The same problems are right" in reading
    rows[-1] = row_of("mcts", 1, 0.9, wall_s=20.0)
    assert "In 1 run other problems are right" in schedules(rows, []).reading


def test_a_cost_per_problem_is_over_all_that_were_solved_however_little_it_is():
    rows = row_of("a", wall_s=50.0, problems=2), row_of("b", wall_s=0.0)
    found = [each["wall seconds"] for each in costs(*rows, cost="seconds").rows]
    assert found == [1e-4, 5.0], "eight of the ten had no reference"


WITHIN = "At the smallest budget that every strategy can meet"
NINE, SIX, FIVE = "90.0% [59.6, 98.2]", "60.0% [31.3, 83.2]", "50.0% [23.7, 76.3]"
TWO, ONE = "20.0% [5.7, 51.0]", "10.0% [1.8, 40.4]"


def test_the_front_holds_only_what_the_problems_tell_apart():
    rows = [row_of("a", 50, 0.1), row_of("b", 90, 0.2), row_of("c", 95, 0.9)]
    figure = costs(*rows)
    assert figure.reading == (
        "Highest measured: a (n=4) 10.0% from 50 tokens; b (n=4) 20.0% from 90 tokens; c (n=4) "
        "90.0% from 95 tokens. Significant steps up (large marks): from a (n=4) to c (n=4)."
    )
    assert f"{WITHIN} (95 tokens per problem): c {NINE}, b {TWO}, a {ONE}." in figure.notes


def test_at_equal_cost_every_strategy_is_compared_by_its_best_run_within_it():
    rows = [row_of("a", 50, 0.4), row_of("a", 60, 0.5, n=8), row_of("b", 931, 0.6)]
    notes = costs(*rows, row_of("b", 2000, 0.7, n=8)).notes
    assert f"{WITHIN} (931 tokens per problem): b {SIX}, a {FIVE}." in notes


@pytest.mark.parametrize(
    ("right", "reading"),
    [
        ((9, 9, 1), "a (n=4) and b (n=4) are right most often: 90.0% [59.6, 98.2]. c (n=4) is "
         "significantly worse."),
        ((10, 5, 5), "a (n=4) is right most often: 100.0% [72.2, 100.0]. b (n=4) and c (n=4) are "
         "not significantly worse."),
        ((5, 4, 4), "a (n=4) is right most often: 50.0% [23.7, 76.3]. b (n=4) and c (n=4) are not "
         "significantly worse."),
    ],
)  # fmt: skip
def test_ties_are_named(right, reading):
    rows = [row_of(name, 9, each / 10) for name, each in zip("abc", right, strict=True)]
    assert results_figures(rows)[0].reading == reading


def test_seeds_of_a_setting_are_one_row_and_no_rivals_of_one_another():
    rows = [
        row_of(name, 9, (right + seed) / 10, seed=seed)
        for name, right in (("a", 8), ("b", 1))
        for seed in (0, 1)
    ]
    table = results_figures(rows)[0]
    assert [(row["strategy"], row["seeds"], row["accuracy [95%]"][:5]) for row in table.rows] == [
        ("a", "0, 1", "85.0%"),
        ("b", "0, 1", "15.0%"),
    ]
    assert table.reading.startswith("a (n=4) is right most often: 85.0%")
    assert [row["p (Holm)"] for row in table.rows] == ["", "<0.001"]
    alone = results_figures([rows[0], rows[0], rows[2]])[0].rows
    assert [row["strategy"] for row in alone] == ["a", "a", "b"], "runs of one seed are not pooled"


def test_a_curve_has_the_runs_that_were_made_and_blocks_where_there_are_none():
    small = row_of("a", 1, 0.2, n=4, curve=(Point(2, 0.1, 0.1, 2), Point(4, 0.2, 0.2, 1)))
    large = [Point(2, 0.7, 0.7, 4), Point(4, 0.8, 0.8, 2), Point(8, 0.9, 0.9, 1)]
    figure = over_n([small, row_of("a", 1, 0.9, n=8, curve=tuple(large))], [])
    assert [(row["n"], row["accuracy"]) for row in figure.rows] == [(2, 0.7), (4, 0.2), (8, 0.9)]
    assert figure.notes[1].startswith("Points at n=2 come from a run of a larger n")


@given(st.lists(st.floats(1e-4, 1e20), min_size=1, max_size=4))
def test_a_logarithmic_axis_is_a_factor_of_two_wide_and_has_numbers(values):
    found = log_axis(values)
    low, high = found["scale"]["domain"]
    ticks = found["axis"]["values"]
    assert high / low >= 2 - 1e-9
    assert low * (1 - 1e-9) <= min(values) <= max(values) <= high * (1 + 1e-9)
    assert len(ticks) > 1
    assert low <= ticks[0] < ticks[-1] <= high


def test_every_axis_has_numbers_however_near_the_costs_are():
    drawing = pytest.importorskip("vl_convert")
    rows = [row_of(name, cost, 0.5) for name, cost in (("a", 917), ("b", 917.2), ("c", 930))]
    curve = [row_of("a", 1, 0.0, curve=(Point(5, 0.0, 0.0, 2), Point(6, 0.0, 0.0, 1)))]
    for figure in (costs(*rows), costs(*rows, cost="seconds"), over_n(curve, [])):
        svg = drawing.vegalite_to_svg(printed(figure), vl_version="6.4")
        axes = re.findall(r'role-axis-label"[^>]*>(.*?)</g>', svg)
        numbers = [re.findall(r"<text[^>]*>[^<]*\d[^<]*</text>", axis) for axis in axes]
        assert len(numbers) == 2
        assert len(numbers[0]) > 1
        assert numbers[1]


def test_no_name_in_a_legend_is_cut():
    long = "weighted-best-of-n (beam_width=4, num_iterations=40)"
    for name, columns in ((long, 1), ("a", 2)):
        legend = tint("strategy", [name, "b"])["legend"]
        assert (legend["labelLimit"], legend["columns"]) == (0, columns)


def test_a_curve_is_said_with_its_interval():
    points = (Point(1, 0.5, 0.5, 4), Point(4, 0.5, 0.5, 1))
    assert over_n([row_of("a", 1, 0.5, curve=points[:1])], []) is None
    assert "is 50.0% [23.7, 76.3]: a" in over_n([row_of("a", 1, 0.5, curve=points)], []).reading


def test_budgets_of_thinking_are_a_line_for_each_strategy_seeds_together():
    rows = [
        row_of(
            strategy, 4, right / 10, n=n, seed=seed, differs={"thinking_budget": budget, **other}
        )
        for strategy, n, other in (("greedy", 1, {}), ("dvts", 4, {"top_p": 0.5}))
        for budget, right in ((8, 3), (32, 7))
        for seed in (0, 1)
    ]
    (figure,) = [each for each in rows_figures(rows, []) if "over-" in each.name]
    check(figure)
    assert (figure.name, figure.title) == (
        "accuracy-over-thinking-budget",
        "Accuracy over the budget of thinking",
    )
    assert [(row["strategy"], row["thinking_budget"], row["accuracy"]) for row in figure.rows] == [
        (name, budget, right)
        for name in ("greedy (n=1)", "dvts (top_p=0.5, n=4)")
        for budget, right in ((8, 0.3), (32, 0.7))
    ]
    assert figure.reading.startswith("The highest accuracy is 70.0% [39.7, 89.2]: greedy (n=1) at ")
    assert over_parameter(rows[:2], "thinking_budget", []) is None


def test_a_sweep_has_a_line_for_each_strategy_over_costs_n_and_each_parameter():
    rows = [
        row_of(
            strategy, 10.0 * n * heat, (right + n) / 10, n=n, compute_per_problem=1e9 * n,
            curve=(Point(n, (right + n) / 10, 1.0, 1),), differs={"temperature": heat},
        )
        for strategy, right in (("beam-search", 4), ("majority-vote", 1))
        for n in (1, 4)
        for heat in (0.5, 1.0)
    ]  # fmt: skip
    figures = {figure.name: figure for figure in rows_figures(rows, [])}
    check_all(list(figures.values()))
    assert [name for name in figures if "seconds" not in name] == [
        "accuracy-against-tokens",
        "accuracy-against-compute",
        "accuracy-over-n",
        "accuracy-over-temperature",
    ]
    for name in ("accuracy-against-tokens", "accuracy-against-compute"):
        drawn = figures[name].rows
        assert {row["strategy"] for row in drawn} == {
            f"{name} (temperature={heat})"
            for name in ("beam-search", "majority-vote")
            for heat in (0.5, 1.0)
        }, "of a grid each value has a line"
        assert all({"low", "high", "p (Holm)"} <= row.keys() for row in drawn)
    alone = rows_figures([row for row in rows if row.n == 4], [])[0]
    assert [(row["strategy"], row["temperature"]) for row in alone.rows] == [
        (name, heat) for heat in (0.5, 1.0) for name in ("beam-search", "majority-vote")
    ], "of one parameter each strategy has a line"
    assert "beam-search (n=4, temperature=0.5) 80.0%" in alone.reading
    heat = figures["accuracy-over-temperature"]
    assert {row["strategy"] for row in heat.rows} == {
        f"{name} (n={n})" for name in ("beam-search", "majority-vote") for n in (1, 4)
    }
    assert all(
        row["low"] < row["accuracy"] < row["high"] for row in figures["accuracy-over-n"].rows
    )


def test_at_the_same_budget_strategies_are_compared_with_the_best():
    rows = [
        row_of(strategy, 0.9 * tokens, right / 10, seed=seed, budget={"budget_tokens": tokens})
        for strategy, right in (("dvts", 9), ("mcts", 3), ("rebase", 8))
        for tokens in (500, 1000)
        for seed in (0, 1)
    ]
    figure = costs(*rows)
    check(figure)
    assert len(figure.rows) == 6
    by_place = {(row["strategy"], row["budget"]): row for row in figure.rows}
    best = by_place["dvts", "500 tokens"]
    assert (best["tokens"], best["accuracy"], best["to the best"]) == (450.0, 0.9, 0.0)
    assert (best["low"], best["high"]) == (0.5958, 0.9821)
    lost = by_place["mcts", "1,000 tokens"]
    assert lost["to the best"] == -0.6
    assert lost["to the best, high"] < 0


MANY = {f"p{number}": number % 3 > 0 for number in range(2 * MOST_ROWS)}


def figures_of_pair(one, other, **config):
    """The figures of the runs with these logs, called `one` and `other`."""
    one, other = run_of(one, "one"), run_of(other, "other", **config)
    settings_ = differing_settings([one.config, other.config])
    return pairs_figures(
        Comparison(runs=[one, other], settings=settings_, pairs=[pair_of(one, other)])
    )


@settings(max_examples=20)
@given(whole_logs(), whole_logs())
def test_every_figure_of_any_two_runs_is_valid(one, other):
    if one[1:] and other[1:]:
        check_all(figures_of_pair(one, other, seed=1))


def test_many_problems_are_thinned_and_the_figure_says_so():
    runs = log_of(MANY), log_of(dict.fromkeys(MANY, True))
    found = {each.name: each for each in figures_of_pair(*runs)}
    check_all(list(found.values()))
    assert "settings" not in found
    drawn = found["by-problem-1"]
    assert (len(drawn.rows), len(drawn.notes)) == (MOST_ROWS, 1)
    assert {row["right in"] for row in drawn.rows} == {"both", "only this run"}
    assert found["disagreements-1"].rows[0]["right in"] == "other"
    (gained,) = found["accuracy-differences"].rows
    assert gained["points"] == pytest.approx(33.33)
    counts = [gained[name] for name in ("only the baseline", "only this run", "both", "problems")]
    assert counts == [0, MOST_ROWS * 2 // 3, MOST_ROWS * 4 // 3, 2 * MOST_ROWS]


def test_a_comparison_of_folders_names_them(tmp_path):
    log = log_of({"a": True, "b": False})
    one = write_run(tmp_path / "one", log)
    other = write_run(tmp_path / "other", log, parameters=CONFIG["parameters"] | {"n": 8})
    found = {each.name: each for each in comparison_figures(compare([one, other]))}
    check_all(list(found.values()))
    assert found["settings"].rows == [{"setting": "parameters.n", "one": "4", "other": "8"}]


def test_runs_without_references_are_compared_by_cost():
    log = log_of({"a": None, "b": None})
    names = [each.name for each in figures_of_pair(log, log)]
    assert names == ["cost-differences", "trees-compared", "by-problem-1"]
