"""Which answers have a warning, and what it says."""

import pytest

from tts.build.spec import load_deployment
from tts.datasets.demo import EXAMPLES
from tts.session.doubts import DOUBTFUL, doubt_of_question, doubt_of_score, doubts


@pytest.fixture(scope="module")
def demo():
    return load_deployment("demo")


def test_a_score_below_the_threshold_is_a_warning(demo):
    assert doubt_of_score(demo, DOUBTFUL) is None
    assert doubt_of_score(demo, None) is None
    assert doubt_of_score(demo, DOUBTFUL - 0.0001) == (
        "The verifier's score of this answer is only 0.4999. It may well be wrong."
    )


def test_a_likelihood_is_no_judgement(demo):
    verifier = demo.verifier.model_copy(update={"format": "likelihood"})
    assert doubt_of_score(demo.model_copy(update={"verifier": verifier}), 0.001) is None


@pytest.mark.parametrize("question", EXAMPLES)
def test_the_demo_pair_knows_its_examples(demo, question):
    assert doubts(demo, question, 0.99) == []


def test_a_question_that_the_demo_pair_does_not_know_is_a_warning(demo, tiny_deployment):
    (told,) = doubts(demo, "What is 2 + 2?", 0.99)
    assert told.endswith("The answer may well be wrong.")
    assert doubt_of_question(tiny_deployment, "What is 2 + 2?") is None
