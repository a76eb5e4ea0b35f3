"""What only models on TensorRT-LLM's `LLM(...)` do, in a real Triton server, on the stand-in.

That they answer as OpenVINO's models do is shown by the tests of these, which run on both.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from tests.engines.llmapi_standin import Misbehave
from tests.engines.triton_client import Client, infer, outputs, sampled

from tts.engines import wire
from tts.engines.wire import Failure, decode_failure

pytestmark = [
    pytest.mark.server,
    pytest.mark.xdist_group("served"),
    pytest.mark.parametrize("server", ["llmapi"], indirect=True),
]


@pytest.fixture(autouse=True)
def behave(misbehave: Misbehave) -> Iterator[None]:
    yield
    misbehave()


def comes_to_rest(client: Client, model: str) -> bool:
    """Longer than the client's own patience: requests on hold end by their cancellation alone."""
    return any(client.at_rest(model) for _ in range(10))


def test_a_cancelled_stream_aborts_the_request_in_the_engine(client: Client, misbehave: Misbehave):
    misbehave(hold=True)
    calls = [client.open(infer("generator", output=220, streaming=True)) for _ in range(4)]
    for call in calls:
        next(call)
    assert client.gauges("generator")["nv_trt_llm_request_metrics/max"] == 8
    for call in calls:
        call.cancel()
    assert comes_to_rest(client, "generator")


def test_a_stop_request_aborts_the_running_one_which_says_so(client: Client, misbehave: Misbehave):
    misbehave(hold=True)
    running = client.open(infer("generator", request_id="run", output=220, streaming=True))
    next(running)
    (answer,) = client.open(infer("generator", request_id="run", stop=True, empty_final=True))
    assert not answer.error_message
    assert not answer.infer_response.outputs
    *_, last = running
    assert decode_failure(last.error_message) == (
        Failure.CANCELLED,
        "the request was cancelled",
    )
    assert comes_to_rest(client, "generator")


def test_a_stop_word_of_several_tokens_aborts_the_rest(client: Client):
    tokens, _ = client.generate(**sampled(output=200))
    table = wire.encode_stop_words([tokens[3:5]])[None]
    stopped, _ = client.generate(**sampled(output=200, stop_words_list=table))
    assert stopped == tokens[: len(stopped)]
    assert stopped[-2:] == tokens[3:5]
    assert comes_to_rest(client, "generator")


@pytest.mark.parametrize("how", ["refuse", "fail"])
def test_a_request_that_the_engine_refuses_fails_alone(
    client: Client, misbehave: Misbehave, how: str
):
    reference, _ = client.generate(**sampled())
    misbehave(**{how: 77})
    calls = [client.open(infer("generator", **sampled(seed, output=40))) for seed in range(4)]
    tokens, error = client.generate(**sampled(prompt=(5, 77)))
    assert tokens == []
    assert f"{how}" in error
    assert all(not answer.error_message for call in calls for answer in call)
    assert client.generate(**sampled()) == (reference, "")
    assert comes_to_rest(client, "generator")


def test_the_logits_of_the_labels_alone_leave_the_engine(client: Client):
    raw = client.score("prm_engine")
    assert raw["generation_logits"].shape == (1, 1, 1, 2)
    assert raw["output_ids"].ravel().tolist() in ([3], [4])
    scored = client.score("prm")
    assert scored["label_logits"].ravel() == pytest.approx(
        raw["generation_logits"].ravel(), abs=1e-5
    )


def test_log_probabilities_are_those_of_the_tokens(client: Client):
    (answer,) = client.open(infer("generator", **sampled(return_log_probs=True)))
    out = outputs(answer.infer_response)
    assert out["output_log_probs"].shape == out["output_ids"].shape
    assert (out["output_log_probs"] <= 0).all()
    assert np.isclose(out["cum_log_probs"].item(), out["output_log_probs"].sum(), atol=1e-4)


@pytest.mark.parametrize(("name", "value"), [("presence_penalty", 1.0), ("min_tokens", 2)])
def test_what_the_engine_would_ignore_is_refused(client: Client, name: str, value: float):
    tokens, error = client.generate(**sampled(**{name: value}))
    assert tokens == []
    assert f"{name} is" in error
    assert "would not apply it" in error
