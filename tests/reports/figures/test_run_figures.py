"""The figures of a run: whole, small, and honest about what a log says."""

from hypothesis import given, settings
from tests.analysis.logs import LOGS, whole_logs
from tests.reports.figures.checks import check_all

from tts.analysis.measured_run import MeasuredRun
from tts.analysis.measures import Measures
from tts.reports.figures.run import figures_of

CONFIG = {"strategy": "best-of-n", "vote": "best", "parameters": {"n": 4}}


def figures(log, **config):
    return figures_of(MeasuredRun(None, CONFIG | config, Measures.of(log)))


@settings(max_examples=20)
@given(whole_logs())
def test_every_figure_of_any_run_is_valid(log):
    check_all(figures(log))


@settings(max_examples=20)
@given(LOGS)
def test_a_run_that_has_solved_nothing_has_figures_too(log):
    check_all(figures(log))


def test_a_run_that_has_not_begun_has_no_figures():
    assert figures([]) == []
