"""The strategies there are, and what their parameters refuse."""

import subprocess
import sys

import pytest

from tts.base.errors import ConfigError
from tts.search import AnswerForm, Generated, Stop, Thought
from tts.strategies.catalog import STRATEGIES, find_strategy, new_search
from tts.strategies.names import STRATEGY_NAMES


@pytest.mark.parametrize(
    ("strategy", "parameters", "named"),
    [
        ("dvts", {"n": 10, "beam_width": 4}, "beam_width"),
        ("dvts", {"n": 2, "beam_width": 4}, "beam_width"),
        ("rebase", {"n": 0}, "n = 0"),
        ("best-of-n", {"agg_strategy": "median"}, "agg_strategy"),
        ("beam-search", {"temperature": float("nan")}, "temperature"),
        ("beam-search", {"finish": "never"}, "finish"),
        ("beam-search", {"width": 4}, "no parameter 'width'"),
        ("greedy", {"n": 4}, "fixed at 1"),
        ("beam-search", {"max_tokens": 4097}, "max_tokens is 4097"),
    ],
)
def test_bad_parameters_are_refused_by_name(strategy, parameters, named):
    with pytest.raises(ConfigError, match=named):
        find_strategy(strategy).configure(parameters, context=4096)


def test_the_light_names_are_those_of_the_catalog_and_import_nothing_heavy():
    assert list(STRATEGIES) == list(STRATEGY_NAMES)
    assert all(name == strategy.name for name, strategy in STRATEGIES.items())
    code = (
        "import sys, tts.strategies.names\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('pydantic', 'numpy')],\n"
        "      [name for name in sys.modules if name.startswith('tts.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] ['tts.strategies', 'tts.strategies.names']\n"


def test_answer_extraction_can_be_replaced():
    read = []

    def answer_form(text):
        read.append(text)
        return AnswerForm("always", True)

    given = {"n": 3, "batch": 2, "threshold": 0.5}
    config = find_strategy("adaptive-vote").configure(given, context=64)
    search = new_search(config, len, answer_form)
    for work in search.ask():
        search.tell(Generated(work.node, (Thought((1,), "x", Stop.END),)))
    assert read == ["x", "x"], "two agree: a third is not drawn"
    assert search.done
