"""A verifier that writes, on an engine that answers what a test scripts."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.endpoints.scripted import ScriptedVerifier

from tts.base.errors import EndpointError
from tts.build.spec import RemoteVerifier
from tts.build.tokenizer import Tokenizer
from tts.build.verifiers.critique import critic
from tts.build.verifiers.untrained import prompted
from tts.endpoints.base import ScoreCall, VerifierResult
from tts.endpoints.critique import UNDECIDED, CriteriaVerifier, WritingVerifier

CHECKPOINTS = Path(__file__).resolve().parents[2] / "engines" / "checkpoints"
PLAIN, THINKS = CHECKPOINTS / "demo-generator", CHECKPOINTS / "demo-thinking"
TOKENIZER = Tokenizer(PLAIN)
PROMPT = "{question}\n{steps}\n{step}"
CLOSING = "</think>\n"
END = Tokenizer(THINKS).special("eos_token")


def section(checkpoint=PLAIN, **critique):
    given = {"verdict": {"after": "=", "scale": [0, 9]}, "temperature": 0.5, "max_tokens": 20}
    return RemoteVerifier(
        url="http://localhost",
        tokenizer=checkpoint,
        max_seq_len=400,
        in_flight_requests=4,
        format="critique",
        prompt=PROMPT,
        critique=given | critique,
    )


class Writer:
    """Writes the next of its texts, or by the seed where it is given a function."""

    def __init__(self, said, tokenizer):
        self.said, self.tokenizer, self.calls, self.cancelled = said, tokenizer, [], 0

    async def generate(self, call):
        self.calls.append(call)
        said = self.said(call) if callable(self.said) else self.said[len(self.calls) - 1]
        try:
            await asyncio.sleep(0 if said is not None else 3600)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(said, Exception):
            raise said
        return self.tokenizer.encode(said)[: call.max_new_tokens]


def verifier(said, spec):
    tokenizer = Tokenizer(spec.tokenizer)
    return WritingVerifier(Writer(said, tokenizer), critic(tokenizer, spec), spec)


def call(made, steps=("1 + 1 = 2",)):
    return ScoreCall(made.critic.prompt("1 + 1", steps), "1 + 1", steps)


@pytest.mark.parametrize(
    ("said", "critique", "score", "no_verdict", "requests"),
    [
        (["9 = 9"], {}, 1.0, 0, 1),
        (["9 + 9", "9 = 3"], {}, 1 / 3, 0, 2),  # written once more
        (["9 + 9", "9 + 9"], {}, UNDECIDED, 1, 2),
        (["9 + 9"], {"temperature": 0}, UNDECIDED, 1, 1),  # it would be the same again
        (["= 9", "= 3"], {"samples": 2}, 2 / 3, 0, 2),
        (["= 9", "9", "9"], {"samples": 2}, 1.0, 1, 3),  # of those that have one
        (["9 " * 500] * 2, {}, UNDECIDED, 1, 2),  # writes for ever
    ],
)
async def test_scores_are_the_mean_of_the_verdicts_that_there_are(
    said, critique, score, no_verdict, requests
):
    spec = section(**critique)
    made = verifier(said, spec)
    result = await made.score(call(made))
    calls = made.generator.calls
    assert (result.score, result.no_verdict) == (pytest.approx(score), no_verdict)
    assert len(calls) == requests
    assert len({each.seed for each in calls}) == requests
    assert all(each.max_new_tokens == 20 for each in calls)
    assert result.tokens == sum(len(TOKENIZER.encode(text)[:20]) for text in said)


@given(st.lists(st.sampled_from(["1 = 1", "2 = 2", "3 = 4"]), min_size=1, max_size=6), st.randoms())
def test_equal_chains_have_equal_critiques_in_any_order(steps, random):
    spec = section(samples=3)

    async def scores(order):
        made = verifier(lambda call: f"= {call.seed % 10}", spec)
        results = {}
        for length in order:
            results[length] = await made.score(call(made, tuple(steps[:length])))
        return results

    lengths = list(range(1, len(steps) + 1))
    other = lengths * 2
    random.shuffle(other)
    assert asyncio.run(scores(lengths)) == asyncio.run(scores(other))


async def test_the_first_failure_and_a_cancelled_score_end_all_samples():
    spec = section(samples=3)
    for said in ([None, EndpointError("gone"), None], [None] * 3):
        made = verifier(said, spec)
        score = asyncio.ensure_future(made.score(call(made)))
        await asyncio.sleep(0.01)
        score.cancel()
        with pytest.raises((EndpointError, asyncio.CancelledError)):
            await score
        assert made.generator.cancelled == said.count(None)


@pytest.mark.parametrize(
    ("said", "score", "limits"),
    [
        ([f"1 + 1{CLOSING}", "= 9"], 1.0, [6, 16]),  # within the budget
        (["9 " * 30, "= 9"], 1.0, [6, 12]),  # closed at its end
        (["9", "9"], UNDECIDED, [6, 6]),  # ended inside
        ([f"9{END}", f"9{END}"], UNDECIDED, [6, 6]),  # with the token that ends a text
    ],
)
async def test_a_budget_ends_the_thinking(said, score, limits):
    closing = len(Tokenizer(THINKS).encode(CLOSING))
    spec = section(THINKS, thinking={"budget_tokens": 6 + closing, "closing_text": CLOSING})
    made = verifier(said, spec)
    result = await made.score(call(made))
    assert result.score == score
    assert END not in result.critique
    assert [each.max_new_tokens for each in made.generator.calls] == limits


async def test_criteria_are_asked_one_by_one_over_the_same_path():
    spec = RemoteVerifier(
        url="http://localhost",
        tokenizer=PLAIN,
        max_seq_len=400,
        in_flight_tokens=400,
        format="graded",
        prompt=PROMPT + "\n{criterion}",
        labels=["1", "2", "3"],
        criteria=["1 + 1", "2 + 2"],
    )
    dialogue = prompted(TOKENIZER, spec)
    asked = ScriptedVerifier(steps=10**6)
    path = dialogue.extend(dialogue.first("1 + 1", "2 = 2"), "3 = 3")
    result = await CriteriaVerifier(asked, dialogue).score(ScoreCall(path))
    dialogues = [np.frombuffer(ids, np.int32) for ids in asked.calls.scored]
    texts = [TOKENIZER.spelled(ids) for ids in dialogues]
    assert [("1 + 1" in text.rpartition("3 = 3")[2]) for text in texts] == [True, False]
    single = [await ScriptedVerifier(steps=10**6).score(ScoreCall(ids)) for ids in dialogues]
    assert result == VerifierResult(pytest.approx(sum(each.score for each in single) / 2))
