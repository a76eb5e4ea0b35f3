"""Verifiers with a head of their own, searched with on embedded engines."""

import asyncio

import numpy as np
import pytest
from tests.end_to_end.commands import built_alone, grown_under_every_schedule

from tts.datasets.load import load_problems
from tts.endpoints.base import ScoreCall
from tts.prompting import Models
from tts.session import AsyncSession

pytestmark = pytest.mark.xdist_group("test_heads")  # they share the engines

EXPECTED = {
    "demo-classification": [0.983910, 0.002082, 0.980322, 0.942959],
    "demo-value": [0.972483, 0.004816, 0.966810, 0.274886],
}
"""Scores by the checkpoint's weights and torch, of what is asked below."""
QUESTION = "Compute 37 + 58 - 20."
SMALL = {"n": 4, "beam_width": 2, "num_iterations": 3}


@pytest.fixture(scope="module", params=EXPECTED)
def headed(request, tmp_path_factory):
    """A deployment whose engines are built in a home of its own."""
    said = f"verifier: judges with a {request.param.removeprefix('demo-')} head"
    with built_alone(request.param, tmp_path_factory.mktemp(request.param), said) as deployment:
        yield deployment


@pytest.mark.slow
def test_every_schedule_grows_the_same_trees_with_a_head(headed, tmp_path):
    name = headed.name
    problems = load_problems("demo", limit=4)
    assert len(problems) == 4
    digests, scores = grown_under_every_schedule(name, problems, SMALL, tmp_path)
    assert len(digests) == 1
    assert np.ptp(scores) > 0.5, "a head that tells nothing would agree with itself, too"


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
def test_scores_of_a_headed_verifier_are_those_of_its_checkpoint(headed, kind):
    async def scores():
        async with AsyncSession(headed.name, server=kind) as session:
            _, verifier = session.endpoints
            calls = [ScoreCall(ids, QUESTION, ()) for ids in asked(headed)]
            return [(await verifier.score(call)).score for call in calls]

    found = asyncio.run(scores())
    assert found == pytest.approx(EXPECTED[headed.name], abs=1e-4)
    assert found[0] > found[1]
    assert found[2] > found[3]


@pytest.mark.slow  # a heavy import
def test_so_torch_computes_them(headed):
    """The checkpoint's own numbers, over the layers that transformers has."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file
    from transformers import Qwen2Model

    weights = load_file(headed.verifier.checkpoint / "model.safetensors")
    weights = {key: value.float() for key, value in weights.items()}
    layers = Qwen2Model.from_pretrained(headed.verifier.checkpoint).float().eval()

    def expected(ids):
        with torch.no_grad():
            hidden = layers(torch.tensor(ids[None], dtype=torch.int64)).last_hidden_state[0, -1]
        if headed.name == "demo-value":
            value = weights["v_head.summary.weight"] @ hidden + weights["v_head.summary.bias"]
            return value.sigmoid().item()
        inner = weights["score.0.weight"] @ hidden + weights["score.0.bias"]
        classes = weights["score.2.weight"] @ inner.relu() + weights["score.2.bias"]
        return classes.softmax(-1)[1].item()

    computed = [expected(ids) for ids in asked(headed)]
    assert computed == pytest.approx(EXPECTED[headed.name], abs=1e-5)
