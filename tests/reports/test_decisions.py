"""The sentences on a decision of `auto`."""

import pytest

from tts.reports.page.trees import reason
from tts.search import Advice, Decision


def test_a_decision_is_explained():
    advice = Advice(votes=1, allowance=1737, cap=13896, auroc=0.842)
    assert reason(Decision(advice, "vote", 9000, 340)) == (
        "The method was MCTS, which follows the scores (the verifier's scores of steps have an "
        "area under the ROC curve of 0.84). It was allowed 1,737 tokens if it had a completion by "
        "then, and 13,896 at most. It took 9,000 tokens (it could have ended after 340) and ended "
        "because the vote was decided."
    )


CHAINS_BEFORE_ANY_VOTE = Decision(Advice(), "limit", 90, None, chain_tokens=30)


@pytest.mark.parametrize(
    ("decision", "part", "said"),
    [
        (Decision(Advice("rebase"), "vote", 900, 340), "share out chains by the scores", True),
        (Decision(Advice(), "limit", 90, None), "no completion came before the end", True),
        (CHAINS_BEFORE_ANY_VOTE, "no completion", False),
        (
            Decision(Advice(allowance=0, cap=800), "allowance", 125, 125),
            "It was to end with its first completions or at 800 tokens.",
            True,
        ),
    ],
)
def test_what_is_special_about_a_decision_is_told(decision, part, said):
    assert (part in reason(decision)) == said


@pytest.mark.parametrize("method", ["mcts", "rebase", "vote"])
@pytest.mark.parametrize("by", ["vote", "allowance", "no votes", "n", "limit"])
def test_every_decision_has_a_sentence(method, by):
    assert "was not measured" in reason(Decision(Advice(method), by, 10, None))
