"""Functions of the program's own: a reward, an answer, an equality; what they do wrong is named."""

import asyncio
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.build.errors import FunctionError
from tts.endpoints.base import ScoreCall
from tts.search import BeamSearchConfig
from tts.session import Session
from tts.session.functions import FunctionVerifier, answer_form_of, name_of

QUESTION = "Compute 2 + 2."
NO_IDS = np.empty(0, np.int32)


def score_with(function, steps=("one", "two")):
    verifier = FunctionVerifier(function)
    try:
        return asyncio.run(verifier.score(ScoreCall(NO_IDS, QUESTION, steps))).score
    finally:
        verifier.close()


@given(st.floats(0, 1))
def test_a_number_within_0_and_1_is_the_score(number):
    assert score_with(lambda question, steps: number) == number


@given(
    st.one_of(
        st.floats(max_value=0, exclude_max=True),
        st.floats(min_value=1, exclude_min=True),
        st.just(float("nan")),
        st.none(),
        st.text(),
        st.lists(st.floats(0, 1)),
    )
)
def test_anything_else_is_refused_by_the_functions_name_and_what_it_gave(value):
    def my_reward(question, steps):
        return value

    with pytest.raises(FunctionError, match="my_reward gave") as caught:
        score_with(my_reward)
    assert repr(value)[:20] in str(caught.value)


def test_numbers_of_numpy_and_bool_are_numbers():
    assert score_with(lambda question, steps: np.float32(0.5)) == 0.5
    assert score_with(lambda question, steps: np.array(0.25)) == 0.25
    assert score_with(lambda question, steps: True) == 1.0


def test_a_reward_is_given_question_and_steps_and_runs_in_one_thread_at_a_time(
    tiny_deployment, endpoints
):
    running, most, asked, names = [], [], [], set()

    def reward(question, steps):
        running.append(steps)
        most.append(len(running))
        asked.append((question, tuple(steps)))
        names.add(threading.current_thread().name)
        running.remove(steps)
        return len(steps[-1]) % 5 / 4

    given = {**endpoints, "verifier": reward}
    with Session.open(tiny_deployment, **given) as session:
        result = session.solve(QUESTION, n=4, seed=1)
    assert max(most) == 1
    assert len(names) == 1
    assert threading.current_thread().name not in names
    assert {question for question, _ in asked} == {QUESTION}
    chain = result.completions[0]
    assert chain.step_scores[-1] == pytest.approx(len(chain.steps[-1]) % 5 / 4, abs=1e-4)
    for thread in threading.enumerate():
        if thread.name in names:
            thread.join(timeout=10)  # closing does not wait for it
            assert not thread.is_alive()


def test_an_async_reward_is_awaited_for_many_chains_at_a_time(tiny_deployment, endpoints):
    waiting, most = set(), []

    async def reward(question, steps):
        waiting.add(id(steps))
        most.append(len(waiting))
        await asyncio.sleep(0)
        waiting.discard(id(steps))
        return 0.5

    given = {**endpoints, "verifier": reward}
    with Session.open(tiny_deployment, **given) as session:
        session.solve(QUESTION, n=4, seed=1)
    assert max(most) > 1


def test_a_reward_needs_no_verifier_checkpoint(tiny_deployment, endpoints, tmp_path):
    missing = tiny_deployment.verifier.model_copy(update={"checkpoint": tmp_path / "none"})
    deployment = tiny_deployment.model_copy(update={"verifier": missing})
    given = {**endpoints, "verifier": lambda question, steps: 0.5}
    with Session.open(deployment, **given) as session:
        assert session.solve(QUESTION, n=4).completions[0].score == 0.5
        assert session.score(QUESTION, ["a", "b"]) == [0.5, 0.5]


def test_a_reward_that_raises_is_named_and_its_error_is_the_cause(tiny_deployment, endpoints):
    def reward(question, steps):
        raise KeyError("weights")

    given = {**endpoints, "verifier": reward}
    with (
        Session.open(tiny_deployment, **given) as session,
        pytest.raises(FunctionError, match="reward raised KeyError: 'weights'") as caught,
    ):
        session.solve(QUESTION, n=4)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("early_stop", [False, True])
def test_an_answer_that_is_no_text_is_refused(session, early_stop):
    config = BeamSearchConfig(n=4, early_stop=early_stop)
    with pytest.raises(FunctionError, match="gave 4; an answer must be a text or None"):
        session.solve(QUESTION, strategy=config, answer_of=lambda text: 4)


def test_with_an_equality_of_ones_own_only_the_same_characters_are_known_to_be_equal():
    own = answer_form_of(None, lambda answer, other: True)
    usual = answer_form_of(None, None)
    assert own(r"\boxed{4}") != own(r"\boxed{4.0}")
    assert usual(r"\boxed{1{,}000}") == usual(r"\boxed{1000}")
    assert own("no answer") is usual("no answer") is None


def test_functions_methods_objects_and_partials_have_names():
    from functools import partial

    class Model:
        def __call__(self, question, steps):
            return 0.5

    assert name_of(name_of) == "tts.session.functions.name_of"
    assert name_of(partial(name_of, 1)) == "tts.session.functions.name_of"
    assert name_of(Model()).endswith("Model")
    assert score_with(Model()) == 0.5
