"""Solutions that exist already: ranked, each chain asked for once, so much in flight at a time."""

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.session.remote_servers import remote

from tts.base.errors import EndpointUnavailable
from tts.endpoints.base import VerifierResult
from tts.problem import Problem
from tts.prompting import Models
from tts.session import Session
from tts.session.scoring import TEXTS_IN_FLIGHT, NoGenerator, Scorer

QUESTION = "Compute 2 + 2."


class Watched:
    """A verifier that answers when it is its turn, and keeps what was in flight with each call."""

    def __init__(self, order=lambda running: 0, fails=None):
        self.order, self.fails = order, fails
        self.running, self.calls, self.loads = {}, [], []
        self.answered = 0

    async def score(self, call):
        self.calls.append(call)
        answer = asyncio.get_running_loop().create_future()
        self.running[answer] = len(call.input_ids)
        self.loads.append(sum(self.running.values()))
        asyncio.get_running_loop().call_later(0, self._answer)
        try:
            await answer
        finally:
            self.running.pop(answer, None)
        self.answered += 1
        if self.fails and self.answered >= self.fails:
            raise EndpointUnavailable("it is gone")
        return VerifierResult(len(call.input_ids) % 7 / 7)

    def _answer(self):
        waiting = [each for each in self.running if not each.done()]
        if waiting:
            waiting[self.order(len(waiting))].set_result(None)


@pytest.fixture(scope="module")
def models(tiny_deployment):
    return Models.load(tiny_deployment)


def scorer_of(models, verifier, **changes):
    section = models.deployment.verifier.model_copy(update=changes)
    deployment = models.deployment.model_copy(update={"verifier": section})
    return Scorer(replace(models, deployment=deployment), verifier, answers_only=False)


def solutions(*chains):
    return [(Problem(question, question), steps) for question, *steps in chains]


def test_candidates_come_best_first_with_the_votes():
    scores = {"5": 0.75, "4": 0.5, "4 ": 0.5, "none": 0.25}
    answers = {"5": r"So \boxed{5}.", "4": r"So \boxed{4}.", "4 ": r"It is \boxed{4}.", "none": "?"}
    by_text = {text: scores[name] for name, text in answers.items()}

    def reward(question, steps):
        return by_text[steps[-1]]

    with Session.open("demo", generator=NoGenerator(), verifier=reward) as session:
        found = session.score((QUESTION, "4"), list(answers.values()))
    assert [done.node for done in found.completions] == [(0,), (1,), (2,), (3,)]
    assert found.answers == {"best": "5", "weighted": "4", "majority": "4"}
    assert (found.answer, found.correct, found.completions[3].answer) == ("5", False, None)
    assert found.usage.verifier_calls == 4


@pytest.mark.parametrize(("how", "first"), [("last", 1), ("min", 0), ("prod", 0), ("mean", 0)])
def test_scores_of_steps_become_one_as_the_caller_says(opened, how, first):
    scores = {"a": 0.5, "b": 0.5, "c": 0.25, "d": 0.625}
    with opened(verifier=lambda question, steps: scores[steps[-1]]) as session:
        best = session.score(QUESTION, [["a", "b"], ["c", "d"]], agg_strategy=how).completions[0]
    assert best.node == (first,)


@given(
    lengths=st.lists(st.lists(st.integers(1, 120), min_size=1, max_size=5), min_size=1, max_size=8),
    limit=st.integers(60, 400),
    seed=st.integers(0, 99),
)
def test_no_more_is_in_flight_than_the_policy_says(models, lengths, limit, seed):
    verifier = Watched(random.Random(seed).randrange)
    scorer = scorer_of(models, verifier, in_flight_tokens=limit, max_seq_len=4000)
    asked = solutions(*(("q", *("7" * each for each in chain)) for chain in lengths))
    scored = asyncio.run(scorer.score(asked))
    for load, call in zip(verifier.loads, verifier.calls, strict=True):
        assert load <= max(limit, len(call.input_ids))
    own = {tuple(chain[: end + 1]) for chain in lengths for end in range(len(chain))}
    assert len(verifier.calls) == sum(each.requests for each in scored) == len(own)
    wanted = [[len(call.input_ids) % 7 / 7 for call in scorer.calls(each)] for each in asked]
    assert [list(each.scores) for each in scored] == [
        pytest.approx(scores, abs=1e-4) for scores in wanted
    ]
    assert scorer.in_flight == 0


def test_what_solutions_of_a_question_share_is_asked_and_counted_once(models):
    verifier = Watched()
    asked = solutions(("q", "1", "2"), ("q", "1", "3"), ("other", "1", "2"), ("q", "1", "2"))
    scored = asyncio.run(scorer_of(models, verifier).score(asked))
    assert [each.requests for each in scored] == [2, 1, 2, 2]  # questions that stand apart, twice
    assert len(verifier.calls) == 7
    assert sum(each.prompt_tokens for each in scored) == sum(
        len(call.input_ids) for call in verifier.calls
    )
    assert scored[0].new_tokens == max(len(call.input_ids) for call in verifier.calls[:2])
    assert 0 < scored[1].new_tokens < scored[0].new_tokens


def test_the_longest_goes_first_where_equal_prefixes_are_computed_twice(tiny_deployment):
    compiled = tiny_deployment.model_copy(update={"target": "tensorrt"})
    for deployment, first in ((tiny_deployment, 0), (compiled, 2)):
        verifier = Watched()
        scorer = Scorer(Models.load(deployment), verifier, answers_only=False)
        (asked,) = solutions(("q", "1", "2", "3"))
        asyncio.run(scorer.score([asked]))
        calls = [call.input_ids.tobytes() for call in scorer.calls(asked)]
        assert verifier.calls[0].input_ids.tobytes() == calls[first]
        assert verifier.loads[0] == len(verifier.calls[0].input_ids)  # alone
        assert sorted(call.input_ids.tobytes() for call in verifier.calls) == sorted(calls)


def test_the_first_failure_ends_all_and_leaves_room_for_others(models):
    verifier = Watched(fails=5)
    scorer = scorer_of(models, verifier)
    asked = solutions(*((f"q{number}", "1", "2") for number in range(40)))
    scored = {}
    with pytest.raises(EndpointUnavailable, match="it is gone"):
        asyncio.run(scorer.score_all(asked, scored.__setitem__))
    assert 0 < len(scored) < 40
    assert not verifier.running
    assert scorer.in_flight == 0
    verifier.fails = None
    assert len(asyncio.run(scorer.score(asked))) == 40


def test_a_verifier_of_texts_has_enough_of_them_for_full_batches(tiny_deployment):
    full, loads = asyncio.Event(), []

    class Batching:
        async def score(self, call):
            loads.append(scorer.in_flight)
            if scorer.in_flight == TEXTS_IN_FLIGHT:
                full.set()
            await full.wait()
            return VerifierResult(0.5)

    texts = Models.load(tiny_deployment, text_verifier=True)
    scorer = Scorer(texts, Batching(), answers_only=False)
    asked = solutions(*(("q", str(number)) for number in range(TEXTS_IN_FLIGHT + 9)))
    assert len(asyncio.run(scorer.score(asked))) == len(asked)
    assert max(loads) == TEXTS_IN_FLIGHT


def test_an_engine_by_url_scores_without_its_generator(tiny_deployment, servers):
    with Session.open(remote(tiny_deployment), generator=NoGenerator()) as session:
        assert session.score(QUESTION, [["2 + 2 = 4", "So it is 4."]]).completions[0].score
    assert servers.asked == {"http://ver": 2}
