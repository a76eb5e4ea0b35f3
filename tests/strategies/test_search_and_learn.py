"""How answers are read and voted on by search-and-learn's rules."""

import pytest

from tts.search import BeamSearchConfig, DvtsConfig, SampleSearchConfig
from tts.strategies.catalog import find_strategy
from tts.strategies.strategy import extract_answer_or_number


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Therefore, the final answer is: $\\boxed{8}$. I hope it is correct.", "8"),
        ("the final answer is $12$. I hope it is correct", "12"),
        ("first \\boxed{3}, the answer is 4", "3"),
        ("So the answer is 42.", "42"),
        ("final answer is x + 1", "x + 1"),
        ("2 apples and 3,500 pears", "3500"),
        ("it falls by -0.5", "-0.5"),
        ("no number at all", None),
        ("an empty \\boxed{}", None),
    ],
)
def test_by_search_and_learns_rules_a_text_without_a_box_has_an_answer_too(text, answer):
    assert extract_answer_or_number(text) == answer


@pytest.mark.parametrize(
    ("strategy", "config"),
    [
        ("majority-vote", SampleSearchConfig),
        ("best-of-n", SampleSearchConfig),
        ("weighted-best-of-n", SampleSearchConfig),
        ("beam-search", BeamSearchConfig),
        ("dvts", DvtsConfig),
    ],
)
def test_whose_rules_decide_also_decides_how_completions_vote(strategy, config):
    ballot = find_strategy(strategy).ballot
    for semantics in ("search-and-learn", "search-and-learn-stripped"):
        theirs = ballot(config(semantics=semantics))
        assert theirs.as_listed
        assert theirs.answer_of("So it is 42") == "42"
    ours = ballot(config())
    assert not ours.as_listed
    assert ours.answer_of("So it is 42") is None
