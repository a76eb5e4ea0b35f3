"""Verifiers with a head of their own, searched with on a real server."""

import asyncio

import numpy as np
import pytest
from tests.end_to_end.commands import Tts, grown_under_every_schedule

from tts.build.spec import load_deployment
from tts.datasets.load import load_problems
from tts.endpoints.base import ScoreCall
from tts.endpoints.triton import TritonConnection, TritonVerifier
from tts.prompting import Models
from tts.serving.server.start import start_server

pytestmark = pytest.mark.server

HEADED = ("demo-classification", "demo-value")
SMALL = {"n": 4, "beam_width": 2, "num_iterations": 3}


@pytest.fixture(scope="module", params=HEADED)
def headed(request, tmp_path_factory):
    """A deployment that is served, whose engines are built in a home of its own."""
    tts = Tts(tmp_path_factory.mktemp(request.param))
    code, out, err = tts.run("build-engines", request.param, "--no-verify")
    assert code == 0, err
    kind = request.param.removeprefix("demo-")
    assert f"verifier: judges with a {kind} head" in out + err
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTS_HOME", str(tts.home))
        deployment = load_deployment(request.param)
        with start_server(deployment) as server:
            yield deployment, server
    assert tts.leftovers() == []


def test_every_schedule_grows_the_same_trees_with_a_head(headed, tmp_path):
    name = headed[0].name
    problems = load_problems("demo", limit=4)
    assert len(problems) == 4
    digests, scores = grown_under_every_schedule(name, problems, SMALL, tmp_path)
    assert len(digests) == 1
    assert np.ptp(scores) > 0.5, "a head that tells nothing would agree with itself, too"


def test_scores_of_a_headed_verifier_are_those_of_torch(headed):
    """The checkpoint's own numbers, over the layers that transformers has."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file
    from transformers import Qwen2Model

    deployment, server = headed
    weights = load_file(deployment.verifier.checkpoint / "model.safetensors")
    weights = {key: value.float() for key, value in weights.items()}
    layers = Qwen2Model.from_pretrained(deployment.verifier.checkpoint).float().eval()

    def expected(ids):
        with torch.no_grad():
            hidden = layers(torch.tensor(ids[None], dtype=torch.int64)).last_hidden_state[0, -1]
        if deployment.name == "demo-value":
            value = weights["v_head.summary.weight"] @ hidden + weights["v_head.summary.bias"]
            return value.sigmoid().item()
        inner = weights["score.0.weight"] @ hidden + weights["score.0.bias"]
        classes = weights["score.2.weight"] @ inner.relu() + weights["score.2.bias"]
        return classes.softmax(-1)[1].item()

    form = Models.load(deployment).verifier
    question = "Compute 37 + 58 - 20."
    right = form.first(question, "## Step 1: 37 + 58 = 95")
    asked = [
        right,
        form.first(question, "## Step 1: 37 + 58 = 85"),
        form.extend(right, "## Step 2: 95 - 20 = 75"),
        form.extend(right, "## Step 2: 95 - 20 = 65"),
    ]

    async def served():
        async with TritonConnection(server.addresses.grpc) as connection:
            verifier = TritonVerifier(connection)
            return [(await verifier.score(ScoreCall(ids, question, ()))).score for ids in asked]

    scores = asyncio.run(served())
    assert scores == pytest.approx([expected(ids) for ids in asked], abs=1e-4)
    assert scores[0] > scores[1]
    assert scores[2] > scores[3]
