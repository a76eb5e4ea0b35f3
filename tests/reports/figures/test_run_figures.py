"""The figures of a run: whole, small, and honest about what a log says."""

import json
import re

import altair as alt
from hypothesis import given, settings
from tests.analysis.logs import LOGS, whole_logs

from tts.analysis.measured_run import MeasuredRun
from tts.analysis.measures import Measures
from tts.reports.figures.charts import MOST_ROWS
from tts.reports.figures.figure import DATA
from tts.reports.figures.run import figures_of

CONFIG = {
    "strategy": "best-of-n",
    "vote": "best",
    "parameters": {"n": 4},
}


def figures(log, **config):
    return figures_of(MeasuredRun(None, CONFIG | config, Measures.of(log)))


def check(figure):
    """What every figure has to be."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", figure.name)
    assert figure.title
    assert figure.reading.endswith(".")
    assert 0 < len(figure.rows) <= MOST_ROWS
    json.dumps(list(figure.rows), allow_nan=False)
    columns = set(figure.rows[0])
    assert all(set(row) == columns for row in figure.rows)
    if figure.chart is not None:
        alt.Chart.from_dict(figure.chart, validate=True)
        assert figure.chart["width"] == "container"
        text = json.dumps(figure.chart)
        assert json.dumps({"name": DATA}) in text
        assert "values" not in figure.chart.get("data", {})
        assert '"config"' not in text
        for field in re.findall(r'"field": "([^"]+)"', text):
            assert field in columns | {"place"}, f"{figure.name} draws {field}"


@settings(max_examples=30)
@given(whole_logs())
def test_every_figure_of_any_run_is_valid(log):
    found = figures(log)
    for figure in found:
        check(figure)
    assert len({figure.name for figure in found}) == len(found)


@settings(max_examples=30)
@given(LOGS)
def test_a_run_that_has_solved_nothing_has_figures_too(log):
    for figure in figures(log):
        check(figure)


def test_a_run_that_has_not_begun_has_no_figures():
    assert figures([]) == []
