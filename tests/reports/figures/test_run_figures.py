"""The figures of a run: whole, small, and honest about what a log says."""

import pytest
from hypothesis import given, settings
from msgspec.structs import replace
from tests.amounts import amount
from tests.reports.figures.checks import check_all
from tests.runs.logs import (
    LOGS,
    SESSION,
    expansion,
    idle,
    scoring,
    solved,
    started,
    texts,
    used,
    whole_logs,
)
from tests.runs.runs import row_of, run_of

from tts.reports.figures.charts import colour, spread
from tts.reports.figures.run import figures_of, warnings_of
from tts.runs.events import VERSION, LoggedAnswer, LoggedCompletion, SessionBegan


def figures(log, **config):
    return figures_of(run_of(log, **config))


@settings(max_examples=amount(4, 12))
@given(whole_logs())
def test_every_figure_of_any_run_is_valid(log):
    check_all(figures(log))


@settings(max_examples=amount(4, 12))
@given(LOGS)
def test_a_run_that_has_solved_nothing_has_figures_too(log):
    check_all(figures(log))
    assert figures([]) == []


def test_readings_carry_the_numbers_of_the_run():
    """Two problems, one of them right; half of what was speculated is used."""
    groups = (LoggedAnswer("1", True), LoggedAnswer("2", False))
    both = (LoggedCompletion((0,), 0.75, 0), LoggedCompletion((1,), 0.25, 1))
    wrong = tuple(replace(done, group=1) for done in both)
    log = [SessionBegan(t=0.0, time="", version=VERSION, limits=(8, 100))]
    for name, begun, completions in (("a", 0.0, both), ("b", 5.0, wrong)):
        right = {"best": completions is both, "weighted": False, "majority": False}
        log += [
            started(name, begun),
            expansion((0,), begun, begun + 2, problem=name, thoughts=texts("x", length=30)),
            expansion(
                (1,), begun, begun + 2, "speculative", problem=name, thoughts=texts("x", length=10)
            ),
            scoring([0], begun + 2, begun + 3, problem=name),
            idle("verifier", begun, begun + 2, "dependency"),
            solved(
                name,
                begun + 5,
                level=1 if name == "a" else 2,
                correct=right,
                any_correct=completions is both,
                completions=completions if name == "a" else completions[:1],
                groups=groups,
            ),
        ]
    log.insert(3, used((1,), 1.0, problem="a"))
    found = {figure.name: figure for figure in figures(log, parameters={"n": 2})}
    check_all(list(found.values()))
    for name, part in {
        "measures": "2 problems in 10 s, 50.0% [9.5, 90.5] right",
        "accuracy-by-level": "are right, 100.0% at level 1, 0.0% at level 2",
        "accuracy-by-rule": "Chosen by the best score, 50.0%",
        "pass-at-k": "for 25.0% of the problems, among 2 of the completions for 50.0%",
        "scores": "in 75.0% [0.7, 99.9] of all pairs",
        "token-use": "87.5% of 80 generated tokens are on the path of a completion: 7 useful",
        "tokens-per-problem": "Of 2 problems: 40 tokens in the median",
        "latency": "Of 2 problems: 5 s in the median, 5 in the mean, 5 at most",
        "in-flight-generator": "On average 0.8 requests were in flight, 10.0% of the 8 that",
        "idle": "the verifier had nothing in flight for 40.0%",
        "requests-by-kind": "The generator answered 4 requests, the verifier 2",
        "speculation": "2 expansions were sent before their search asked for them; 50.0% were",
        "tokens-per-generator-request": "Of 4 requests: 15 tokens in the median",
        "tree-shape": "A tree has 1.5 steps in the mean and is 1 deep in the median",
    }.items():
        assert part in found[name].reading, found[name].reading
    assert "calibration" in found


def test_a_kind_has_its_colour_in_every_run():
    kinds = ("main", "eager", "cached")
    alone, all_of_them = (colour(names, kinds) for names in (["cached"], kinds))
    assert alone["range"] == all_of_them["range"][2:]
    assert colour(["unheard"], kinds)["domain"] == ["unheard"]


def calibration_of(*bins):
    """The figure of problems with one completion each, by (score, right, wrong)."""
    groups = (LoggedAnswer("1", True), LoggedAnswer("2", False))
    log = [SESSION]
    for score, right, wrong in bins:
        for group in [0] * right + [1] * wrong:
            name, only = str(len(log)), (LoggedCompletion((0,), score, group),)
            log.append(started(name, 0.0))
            log.append(
                solved(name, 1.0, completions=only, groups=groups, correct={"best": not group})
            )
    drawn = figures(log, parameters={"n": 1})
    return next(figure for figure in drawn if figure.name == "calibration")


def test_the_calibration_says_how_many_bins_are_off():
    """Nearly all completions lie at the ends, where the scores fit; some between are far off."""
    figure = calibration_of(
        (0.01, 10, 990), (0.25, 30, 10), (0.45, 3, 2), (0.65, 6, 24), (0.99, 990, 10)
    )
    assert "The score is 1.7% [1.1, 2.5] away" in figure.reading
    assert "2 of 5 bins are off beyond the noise." in figure.reading
    assert [(row["completions"], row["within the noise"]) for row in figure.rows] == [
        (1000, True),
        (40, False),
        (5, True),
        (30, False),
        (1000, True),
    ]
    sizes = [layer["encoding"].get("size", {}).get("field") for layer in figure.chart["layer"]]
    assert "completions" in sizes


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (1, "1 in the median, 1 in the mean, 1 at most"),
        (19, "10 in the median, 10 in the mean, 19 at most"),
        (20, "10 in the median, 10.5 in the mean, 19 at the 95th percentile, 20 at most"),
        (100, "50 in the median, 50.5 in the mean, 95 at the 95th percentile, 99 at the 99th"),
    ],
)
def test_of_few_values_no_tail_is_claimed(count, told):
    assert spread(range(1, count + 1), "").replace("  ", " ").startswith(told)


@pytest.mark.parametrize(
    ("fields", "warnings"),
    [
        ({"unended": 20}, []),
        ({"unended": 21, "accuracy": 0.0}, ["21 of 40 completions did not end"]),
        ({"unended": 2, "mean_completions": 0.3}, ["2 of 3 completions did not end"]),
        ({"accuracy": 0.0}, ["no answer is right"]),
        ({"accuracy": 0.0, "judged": 9}, []),
        (
            {"unanswered": 2, "limited": {"tokens": 3}, "strategy": "auto"},
            ["Give a larger limit, or 64 problems or more, which share the budget."],
        ),
        (
            {"unanswered": 2, "limited": {"deadline": 3}, "strategy": "auto"},
            ["Give a larger limit."],
        ),
    ],
)
def test_a_run_without_ends_or_without_a_right_answer_is_warned_of(fields, warnings):
    found = list(warnings_of(replace(row_of().summary, **fields)))
    assert len(found) == len(warnings)
    assert all(part in warning for part, warning in zip(warnings, found, strict=True))


def test_accuracy_is_said_of_the_problems_with_a_reference():
    log = [SESSION, started("a", 0.0), solved("a", 1.0, correct={"best": True})]
    log += [started("b", 0.0), solved("b", 1.0, correct=None, any_correct=None)]
    reading = figures(log)[0].reading
    assert "2 problems in 1 s, 100.0% [20.7, 100.0] of the 1 with a reference right" in reading
