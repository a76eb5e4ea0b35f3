"""Functions of the program's own: a reward, an answer, an equality; what they do wrong is named."""

import asyncio
import subprocess
import sys
import threading
import traceback
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.base.errors import ConfigError, FunctionError
from tts.endpoints.base import ScoreCall, VerifierResult
from tts.endpoints.functions import FunctionVerifier, name_of
from tts.grading import extract_answer
from tts.grading.votes import answer_form_of
from tts.session import Run, Session

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
        st.lists(st.floats(0, 1)).filter(lambda scores: len(scores) != 2),
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


def test_a_reward_is_given_question_and_steps_and_runs_in_one_thread_at_a_time(opened):
    running, most, asked, names = [], [], [], set()

    def reward(question, steps):
        running.append(steps)
        most.append(len(running))
        asked.append((question, tuple(steps)))
        names.add(threading.current_thread().name)
        running.remove(steps)
        return len(steps[-1]) % 5 / 4

    with opened(verifier=reward) as session:
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


def test_an_async_reward_is_awaited_for_many_chains_at_a_time(opened):
    waiting, most = set(), []

    async def reward(question, steps):
        waiting.add(id(steps))
        most.append(len(waiting))
        await asyncio.sleep(0)
        waiting.discard(id(steps))
        return 0.5

    with opened(verifier=reward) as session:
        session.solve(QUESTION, n=4, seed=1)
    assert max(most) > 1


def test_what_a_verifier_writes_is_counted_in_results_and_logs(opened, tmp_path):
    with opened(verifier=Judge(VerifierResult(0.5, tokens=7, no_verdict=1))) as session:
        (result,) = session.solve_many([QUESTION], n=4, out=tmp_path / "run")
    calls = result.usage.verifier_calls
    assert calls > 0
    run = Run.load(tmp_path / "run")
    for counts in (result.usage, run.summary):
        assert (counts.verifier_calls, counts.critique_tokens) == (calls, 7 * calls)
        assert counts.no_verdict == calls
    written = [each.tokens for each in run.requests if each.engine == "verifier"]
    assert written == [7] * calls


def test_a_reward_needs_no_verifier_checkpoint(tiny_deployment, endpoints, tmp_path):
    missing = tiny_deployment.verifier.model_copy(update={"checkpoint": tmp_path / "none"})
    deployment = tiny_deployment.model_copy(update={"verifier": missing})
    given = {**endpoints, "verifier": lambda question, steps: 0.5}
    with Session.open(deployment, **given) as session:
        assert session.solve(QUESTION, n=4).completions[0].score == 0.5
        assert session.score(QUESTION, [["a", "b"]]).completions[0].step_scores == (0.5, 0.5)


@pytest.mark.parametrize("strategy", ["beam-search", "adaptive-vote"])
def test_an_answer_that_is_no_text_is_refused(session, strategy):
    with pytest.raises(FunctionError, match="lambda> gave 4"):
        session.solve(QUESTION, strategy=strategy, n=4, answer_of=lambda text: 4)


def test_with_an_equality_of_ones_own_only_the_same_characters_are_known_to_be_equal():
    own = answer_form_of(extract_answer, by_text=True)
    usual = answer_form_of(extract_answer, by_text=False)
    assert own(r"\boxed{4}") != own(r"\boxed{4.0}")
    assert usual(r"\boxed{1{,}000}") == usual(r"\boxed{1000}")
    assert own("no answer") is usual("no answer") is None


def test_functions_methods_objects_and_partials_have_names():
    class Model:
        def __call__(self, question, steps):
            return 0.5

    assert name_of(name_of) == "tts.endpoints.functions.name_of"
    assert name_of(partial(name_of, 1)) == "tts.endpoints.functions.name_of"
    assert name_of(Model()).endswith("Model")
    assert score_with(Model()) == 0.5


def test_a_batch_has_a_score_for_each_chain_that_waits(opened):
    sizes = []

    def rate(chains):
        sizes.append(len(chains))
        return np.array([len(steps[-1]) % 5 / 4 for _, steps in chains])

    def one(question, steps):
        return [0.5] * (len(steps) - 1) + [len(steps[-1]) % 5 / 4]

    digests = []
    for verifier in (rate, one):
        with opened(verifier=verifier) as session:
            digests.append(session.solve(QUESTION, n=4, seed=1).tree_digest)
    assert max(sizes) > 1
    assert digests[0] == digests[1]


@pytest.mark.parametrize("given", [[0.5], 0.5, "no", [[0.5], [2.0, 0.5]]])
def test_a_batch_that_is_none_is_refused(given):
    async def go():
        verifier = FunctionVerifier(lambda chains: given)
        calls = [ScoreCall(NO_IDS, QUESTION, steps) for steps in (("a",), ("a", "b", "c"))]
        return await asyncio.gather(*map(verifier.score, calls))

    with pytest.raises(FunctionError, match="lambda> gave "):
        asyncio.run(go())


def test_a_function_that_empties_its_batch_or_has_a_default_learns_why_it_is_wrong():
    def empties(chains):
        chains.clear()
        return []

    def judges(question, steps=()):
        return 0.5

    for function in (empties, judges):
        call = ScoreCall(NO_IDS, QUESTION, ("a",))
        with pytest.raises(FunctionError, match="for a batch of 1 chains") as caught:
            asyncio.run(FunctionVerifier(function).score(call))
        assert "One with a default is not counted." in caught.value.hint


class Text:
    """A model of text: a method of each."""

    def generate(self, prompt, max_tokens, *, seed, stop=()):
        assert prompt.startswith("<|begin_of_text|><|user|>")
        assert max_tokens > 0
        return f"step {seed % 7}" + "".join(stop[:1]) if len(prompt) < 120 else r"\boxed{4}"

    async def score(self, question, steps):
        return len(steps[-1]) % 5 / 4


def test_a_generator_takes_text_and_gives_text(opened):
    model = Text()
    with opened(generator=model, verifier=model) as session:
        first = session.solve(QUESTION, n=4, seed=1)
        assert first.answer == "4"
        assert len(first.completions[0].steps) > 1
        assert session.generate(QUESTION, n=2, max_tokens=3)
    with opened(generator=model.generate, verifier=model.score) as session:
        assert session.solve(QUESTION, n=4, seed=1).tree_digest == first.tree_digest


class Ids:
    def __init__(self, answer):
        self.answer = answer

    async def generate(self, call):
        return self.answer


class Loud(Ids):
    def generate(self, call):
        return self.answer


class Judge:
    def __init__(self, answer):
        self.answer = answer

    async def score(self, call):
        return self.answer


class Unshown:
    """A value that cannot be written."""

    def __repr__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"generator": lambda prompt: 7}, "lambda> gave 7 for a prompt of "),
        ({"generator": lambda prompt: "\ud800"}, "no Unicode text"),
        ({"generator": Ids([10**9])}, r"Ids.generate gave token 1000000000; .* ids from 0 to"),
        ({"generator": Ids([-1])}, "gave token -1"),
        ({"generator": Ids("text")}, "Ids.generate gave 'text'"),
        ({"generator": Ids([0.5])}, r"gave \[0.5\]"),
        ({"generator": Ids(None)}, "gave None"),
        ({"generator": Loud([1])}, r"Loud.generate gave \[1\] at once"),
        ({"verifier": Judge(0.5)}, r"Judge.score gave 0.5"),
        ({"verifier": Judge(VerifierResult([0.5]))}, "Judge.score gave "),
        ({"verifier": Judge(VerifierResult("0.5"))}, "Judge.score gave "),
        ({"verifier": Judge(VerifierResult(0.5, tokens=-1))}, "Judge.score gave "),
        ({"verifier": Judge(VerifierResult(0.5, no_verdict=0.5))}, "Judge.score gave "),
        ({"verifier": lambda question, steps: Unshown()}, "gave a Unshown that cannot be shown"),
    ],
)
def test_what_a_model_must_not_give_is_named(opened, given, told):
    with opened(**given) as session, pytest.raises(FunctionError, match=told):
        session.solve(QUESTION, n=4)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"generator": 7}, "generator is 7"),
        ({"verifier": Judge}, "verifier is <class"),
        ({"generator": lambda prompt, length: ""}, "lambda> must be .prompt, ...."),
        ({"verifier": lambda one, two, three: 0.5}, "lambda> must be .question, steps."),
    ],
)
def test_what_no_engine_can_be_is_refused_at_opening(opened, given, told):
    with pytest.raises(ConfigError, match=told):
        opened(**given)


def test_a_function_that_blocks_leaves_the_loop_alone(opened_async):
    """It waits for what only the loop can do."""
    scored = threading.Event()

    def write(prompt):
        assert scored.wait(60)
        return r"\boxed{4}"

    async def go():
        async with opened_async(generator=write, verifier=Text()) as session:
            writing = asyncio.ensure_future(session.generate(QUESTION))
            await session.score(QUESTION, ["a"])
            scored.set()
            return await writing

    assert asyncio.run(go()) == [r"\boxed{4}"]


class Odd(BaseException):
    """An error of no usual kind, which cannot be written either."""

    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (KeyError("weights"), "reward raised KeyError: 'weights'"),
        (StopIteration(), "reward raised StopIteration"),
        (SystemExit(3), "reward raised SystemExit: 3"),
        (KeyboardInterrupt(), "reward raised KeyboardInterrupt"),
        (GeneratorExit(), "reward raised GeneratorExit"),
        (asyncio.CancelledError(), "reward raised CancelledError"),
        (Odd(), "reward raised Odd"),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_of_any_kind_is_the_functions(opened, kind, told, is_async):
    if is_async and isinstance(kind, GeneratorExit | StopIteration):
        pytest.skip("that is how a coroutine is closed, and ends")

    def reward(question, steps):
        raise kind

    async def async_reward(question, steps):
        raise kind

    own = {"verifier": async_reward if is_async else reward}
    with opened(**own) as session, pytest.raises(FunctionError, match=told) as caught:
        session.solve(QUESTION, n=4)
    assert caught.value.__cause__ is kind
    assert "reward: docs/reference/python.md" in kind.__notes__[-1]
    with opened(**own) as session, pytest.raises(FunctionError) as caught:
        list(session.solve_many([QUESTION], n=4))
    assert caught.value.__cause__ is kind
    assert traceback.extract_tb(kind.__traceback__)[0].filename == __file__


PROGRAM = """
import asyncio, time
from tts.endpoints.functions import Caller

async def ask():
    print(await Caller(lambda: 7)())
    try:
        await asyncio.wait_for(Caller(lambda: time.sleep(600))(), 0.1)
    except TimeoutError:
        print("left")

asyncio.run(ask())
print("ended", flush=True)
"""


def test_a_function_that_blocks_lets_its_program_end():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["7", "left", "ended"]
