"""The figures of runs compared problem by problem."""

import pytest
from hypothesis import given, settings
from tests.reports.figures.checks import check_all
from tests.runs.logs import SESSION, whole_logs
from tests.runs.runs import CONFIG, log_of, run_of, write_run

from tts.build.errors import RunError
from tts.reports.figures.charts import MOST_ROWS
from tts.reports.figures.paired import compare_figures, comparison_figures

MANY = {f"p{number}": number % 3 > 0 for number in range(2 * MOST_ROWS)}


@settings(max_examples=20)
@given(whole_logs(), whole_logs())
def test_every_figure_of_any_two_runs_is_valid(one, other):
    if one[1:] and other[1:]:
        check_all(comparison_figures([run_of(one), run_of(other, seed=1)], ["one", "other"]))


def test_many_problems_are_thinned_and_the_figure_says_so():
    runs = [run_of(log_of(MANY)), run_of(log_of(dict.fromkeys(MANY, True)))]
    found = {each.name: each for each in comparison_figures(runs, ["one", "other"])}
    check_all(list(found.values()))
    assert "settings" not in found
    drawn = found["by-problem-1"]
    assert (len(drawn.rows), len(drawn.notes)) == (MOST_ROWS, 1)
    assert {row["right in"] for row in drawn.rows} == {"both", "only this run"}
    assert found["disagreements-1"].rows[0]["right in"] == "other"
    assert found["accuracy-differences"].rows[0]["points"] == pytest.approx(33.33)


def test_a_comparison_of_folders_names_them(tmp_path):
    log = log_of({"a": True, "b": False})
    one = write_run(tmp_path / "one", log)
    other = write_run(tmp_path / "other", log, parameters=CONFIG["parameters"] | {"n": 8})
    found = compare_figures([one, other])
    check_all(found)
    assert found[0].rows == [{"setting": "parameters.n", "one": "4", "other": "8"}]
    with pytest.raises(RunError, match="two runs or more"):
        compare_figures([one])


def test_runs_without_references_are_compared_by_cost():
    log = log_of({"a": None, "b": None})
    names = [each.name for each in comparison_figures([run_of(log)] * 2, ["one", "other"])]
    assert names == ["cost-differences", "by-problem-1"]
    assert SESSION in log
