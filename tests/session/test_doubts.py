"""Warnings of answers that may well be wrong."""

import pytest

from tts.build.spec import VerifierCalibration, load_deployment
from tts.datasets.demo import EXAMPLES
from tts.session.outcome import doubt_of_answer, doubt_of_question, doubts, probability_of


@pytest.fixture(scope="module")
def demo():
    return load_deployment("demo")


@pytest.mark.parametrize(
    ("score", "probability", "doubtful"),
    [
        (0.4, 0.3, True),
        (0.4, 0.6, False),
        (0.99, 0.2, True),
        (0.01, None, False),
        (None, 0.1, False),
    ],
)
def test_an_answer_is_doubted_by_its_probability_and_not_by_its_score(score, probability, doubtful):
    assert bool(doubt_of_answer(score, probability)) == doubtful


def test_a_probability_is_known_only_of_a_measured_verifier(demo):
    assert probability_of(demo, 0.5) is None
    measured = VerifierCalibration(final=[(0.0, 0.1), (1.0, 0.5)])
    verifier = demo.verifier.model_copy(update={"calibration": measured})
    assert probability_of(demo.model_copy(update={"verifier": verifier}), 0.5) == 0.3


@pytest.mark.parametrize("question", EXAMPLES)
def test_the_demo_pair_knows_its_examples(demo, question):
    assert doubts(demo, question, 0.99, 0.9) == []


def test_a_question_that_the_demo_pair_does_not_know_is_a_warning(demo, tiny_deployment):
    (warning,) = doubts(demo, "What is 2 + 2?", 0.99, None)
    assert warning.endswith("The answer may well be wrong.")
    assert doubt_of_question(tiny_deployment, "What is 2 + 2?") is None
