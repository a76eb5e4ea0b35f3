"""Scores through a real Triton server."""

import grpc
import numpy as np
import pytest
from tests.engines.numpy_llama import llama_logits, softmax
from tests.engines.triton_client import infer

from tts.base.errors import RequestRefused
from tts.endpoints.triton_errors import error_of_text
from tts.engines import wire

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("served")]


@pytest.fixture
def engine(server):
    """The model that runs the verifier's engine; of target openvino that is `prm` itself."""
    return "prm" if server.state.deployment == "tiny" else "prm_engine"


def test_rows_are_scored_as_each_would_be_alone_and_a_bad_one_fails_alone(client):
    prompts = [np.random.default_rng(n).integers(5, 128, n) for n in (100, 1, 300, 40)]
    padded = np.zeros((4, 300), np.int32)
    for row, prompt in zip(padded, prompts, strict=True):
        row[: len(prompt)] = prompt
    request = infer(
        "prm",
        names=["score", *wire.ROW_OUTPUTS],
        input_ids=padded,
        input_lengths=np.array([[len(prompt)] for prompt in prompts], np.int32),
        request_output_len=np.ones((4, 1), np.int32),
        return_generation_logits=np.ones((4, 1), np.bool_),
    )
    request.parameters[wire.FIRST_ROW].int64_param = 3
    answer = client.stub.ModelInfer(request, timeout=60)
    raw = dict(zip((o.name for o in answer.outputs), answer.raw_output_contents, strict=True))
    numbers = np.frombuffer(raw["batch_index"], np.int32).tolist()
    assert sorted(numbers) == [3, 4, 5, 6]
    scores = dict(zip(numbers, np.frombuffer(raw["score"], np.float32).tolist(), strict=True))
    errors = dict(zip(numbers, wire.decode_texts(raw["error"]), strict=True))
    assert "longest admissible prompt is 255" in errors.pop(5)
    assert [*errors.values()] == [""] * 3
    for number in errors:
        alone = client.score(prompt=prompts[number - 3].tolist())["score"].item()
        assert scores[number] == pytest.approx(alone, abs=1e-6)
    assert client.at_rest("prm")


def test_scores_are_those_of_the_checkpoint(client, pair):
    random = np.random.default_rng(0)
    for length in (5, 64, 200):
        prompt = random.integers(5, 128, length)
        labels = llama_logits(pair.verifier.checkpoint, prompt)[-1, [3, 4]]
        out = client.score(prompt=prompt)
        assert out["score"].shape == (1, 1)
        assert out["score"].item() == pytest.approx(softmax(labels)[0].item(), abs=1e-4)
        exponentials = np.exp(out["label_logits"].ravel())
        assert exponentials[0] / exponentials.sum() == pytest.approx(out["score"].item(), abs=1e-6)


@pytest.mark.parametrize(
    ("model", "change", "reason"),
    [
        ("prm", {"prompt": (5,) * 256}, "longest admissible prompt is 255"),
        ("prm", {"prompt": (5, 999)}, "the id 999"),
        ("prm", {"return_generation_logits": False}, "generation_logits"),
        ("engine", {"streaming": True}, "decoupled"),
        ("engine", {"stop": True}, "decoupled"),
    ],
)
def test_a_bad_score_request_is_refused_and_the_next_one_works(
    client, engine, model, change, reason
):
    if model == "engine":
        model = engine
        if engine == "prm":
            reason = "expected 4 inputs but got 5"
    with pytest.raises(grpc.RpcError) as refused:
        client.score(model, **change)
    assert refused.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL)
    refusal = error_of_text(model, refused.value.details())
    assert isinstance(refusal, RequestRefused)
    assert reason in refusal.message
    assert client.score()["score"].shape == (1, 1)


def test_the_verifier_comes_to_rest_after_cancelled_calls(client, engine):
    tensors = {"prompt": (5,) * 200, "output": 1, "return_generation_logits": True}
    calls = [client.stub.ModelInfer.future(infer("prm", **tensors)) for _ in range(20)]
    for call in calls:
        call.cancel()
    assert client.at_rest(engine)
    assert client.score()["score"].shape == (1, 1)
