"""What the demo pair can be asked."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.datasets.chains import NAMES, SURFACES, THINGS, Chain, render_question
from tts.datasets.demo import DEMO, demo_problems
from tts.datasets.demo_questions import EXAMPLE, read_question, why_outside


@given(seed=st.integers(0, 10**9), operations=st.integers(2, 10), data=st.data())
def test_every_wording_of_a_chain_is_read_back(seed, operations, data):
    chain = DEMO.sample_chain(random.Random(seed), operations)
    surface = data.draw(st.sampled_from(SURFACES))
    question = render_question(
        chain, surface, data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from(THINGS))
    )
    assert read_question(question) == chain
    assert why_outside(question) is None


@given(st.text())
def test_any_text_is_read_or_refused(text):
    assert why_outside(text) is None or why_outside(text).endswith((".", "?"))


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("What is the capital of France?", "only knows chains"),
        ("Compute 12 + 30", "only knows chains"),
        ("Compute (12 + 30).", "only knows chains"),
        ("Compute 12 + 30.", "this one has 1"),
        ("Compute ((37 + 58) * 4 - 96) / 2.", "95 * 4 is 380 on the way"),
        ("Compute 120 + 3 - 5.", "120 is in the question"),
        ("Compute 12 / 5 + 3.", "12 / 5 is no whole number"),
        ("Compute 12 / 0 + 3.", "0 is in the question"),
        ("Compute " + "9" * 5000 + " + 3 - 4.", "only knows chains"),
    ],
)
def test_what_is_outside_is_named(question, why):
    assert why in why_outside(question)


def test_what_the_dataset_asks_is_inside():
    assert all(why_outside(problem.question) is None for problem in demo_problems(200, seed=1))
    ops = (("+", 30), ("/", 6), ("+", 8), ("*", 4), ("-", 11), ("/", 7))
    assert read_question(EXAMPLE) == Chain(12, ops)
