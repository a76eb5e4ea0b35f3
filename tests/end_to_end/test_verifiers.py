"""Verifiers with a head of their own, and such as were never trained, on embedded engines."""

import asyncio

import numpy as np
import pytest
from tests.end_to_end.commands import built_alone, grown_under_every_schedule

from tts.datasets.load import load_problems
from tts.endpoints.base import ScoreCall
from tts.prompting import Models
from tts.session import AsyncSession

SAYS = {
    "demo-classification": "judges with a classification head",
    "demo-value": "judges with a value head",
    "demo-prompted": "judges with a prompt: a language head, read at the labels",
}
EXPECTED = {
    "demo-classification": [0.983910, 0.002082, 0.980322, 0.942959],
    "demo-value": [0.972483, 0.004816, 0.966810, 0.274886],
}
"""Scores by the checkpoint's weights and torch, of what is asked below."""
QUESTION = "Compute 37 + 58 - 20."
SMALL = {"n": 4, "beam_width": 2, "num_iterations": 3}


@pytest.fixture(scope="module", params=SAYS)
def judging(request, tmp_path_factory):
    """A deployment whose engines are built in a home of its own."""
    said = f"verifier: {SAYS[request.param]}"
    with built_alone(request.param, tmp_path_factory.mktemp(request.param), said) as deployment:
        yield deployment


@pytest.mark.slow
def test_every_schedule_grows_the_same_trees(judging, tmp_path):
    problems = load_problems("demo", limit=3)
    digests, scores = grown_under_every_schedule(judging.name, problems, SMALL, tmp_path)
    assert len(digests) == 1
    least = 0.5 if judging.name in EXPECTED else 0.1
    assert np.ptp(scores) > least, "one that tells nothing would agree with itself, too"


def asked(deployment):
    """Dialogues: right and wrong first steps, then second ones."""
    form = Models.load(deployment).verifier
    right = form.first(QUESTION, "## Step 1: 37 + 58 = 95")
    return [
        right,
        form.first(QUESTION, "## Step 1: 37 + 58 = 85"),
        form.extend(right, "## Step 2: 95 - 20 = 75"),
        form.extend(right, "## Step 2: 95 - 20 = 65"),
    ]


@pytest.mark.parametrize(
    "kind",
    ["embedded", pytest.param("triton", marks=[pytest.mark.slow, pytest.mark.server])],
)
def test_scores_are_those_of_the_checkpoint_whatever_is_cached(judging, kind):
    async def scores():
        paths = asked(judging)
        async with AsyncSession(judging.name, server=kind) as session:
            _, verifier = session.endpoints
            calls = [ScoreCall(ids, QUESTION, ()) for ids in (*paths, *paths[::-1])]
            return [(await verifier.score(call)).score for call in calls]

    found = asyncio.run(scores())
    cold, warm = found[:4], found[:3:-1]
    assert cold == pytest.approx(warm, abs=1e-4)
    assert abs(cold[2] - cold[3]) > 1e-3, "a right step and a wrong one"
    if expected := EXPECTED.get(judging.name):
        assert cold == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow  # a heavy import
def test_so_torch_computes_them(judging):
    """The checkpoint's own numbers, over the layers that transformers has."""
    torch = pytest.importorskip("torch")
    if judging.name not in EXPECTED:
        pytest.skip("no head of its own")
    from safetensors.torch import load_file
    from transformers import Qwen2Model

    weights = load_file(judging.verifier.checkpoint / "model.safetensors")
    weights = {key: value.float() for key, value in weights.items()}
    layers = Qwen2Model.from_pretrained(judging.verifier.checkpoint).float().eval()

    def expected(ids):
        with torch.no_grad():
            hidden = layers(torch.tensor(ids[None], dtype=torch.int64)).last_hidden_state[0, -1]
        if judging.name == "demo-value":
            value = weights["v_head.summary.weight"] @ hidden + weights["v_head.summary.bias"]
            return value.sigmoid().item()
        inner = weights["score.0.weight"] @ hidden + weights["score.0.bias"]
        classes = weights["score.2.weight"] @ inner.relu() + weights["score.2.bias"]
        return classes.softmax(-1)[1].item()

    computed = [expected(ids) for ids in asked(judging)]
    assert computed == pytest.approx(EXPECTED[judging.name], abs=1e-5)
