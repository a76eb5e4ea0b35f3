"""The sentences on a decision of `auto`."""

import pytest

from tts.reports.decisions import reason
from tts.search import Advice, Decision


def test_a_decision_is_explained():
    advice = Advice(votes=1, allowance=1737, cap=13896, reliability=0.988, gain=1.083)
    assert reason(Decision(advice, "vote", 9000, 340)) == (
        "The method was MCTS, which follows the scores (in earlier problems, high scores agreed in "
        "99% of pairs, and independent chains agreed 1.08 times as often with those of REBASE as "
        "with one another). It was allowed 1,737 tokens if it had a completion by then, and 13,896 "
        "at most. It took 9,000 tokens (it could have ended after 340) and ended because the vote "
        "was decided."
    )


def test_rounds_that_take_turns_are_explained():
    assert "independent chains and, in turn" in reason(Decision(Advice("rebase"), "vote", 900, 340))
    assert "in turn" not in reason(Decision(Advice("rebase", chains=0), "vote", 900, 340))


def test_the_weight_of_low_scores_is_explained():
    advice = Advice("chains", floor=0.55, reliability=0.41)
    assert "Score 0 had 55% of the vote" in reason(Decision(advice, "vote", 900, 340))


@pytest.mark.parametrize("method", ["mcts", "rebase", "chains"])
@pytest.mark.parametrize("by", ["vote", "allowance", "no votes", "n", "limit"])
def test_every_decision_has_a_sentence(method, by):
    said = reason(Decision(Advice(method), by, 10, None))
    assert "nothing was known" in said
    assert "no completion came before the end" in said


def test_a_limit_is_not_said_to_have_left_no_completion_where_there_is_one():
    said = reason(Decision(Advice(), "limit", 90, None, chain_tokens=30))
    assert "no completion" not in said


def test_an_allowance_of_nothing_ends_a_search_with_its_first_completions():
    said = reason(Decision(Advice(allowance=0, cap=800), "allowance", 125, 125))
    assert "It was to end with its first completions or at 800 tokens." in said
