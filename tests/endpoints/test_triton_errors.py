"""Which error of ours an error of a Triton server becomes."""

import grpc
import pytest

from tts.build.errors import EndpointTimeout, EndpointUnavailable, RequestRefused
from tts.endpoints.triton_errors import EngineInUse, error_of_status, error_of_text
from tts.engines.wire import Failure, encode_failure
from tts.serving.contract.facts import passing_failures

KILLED = "the engine's process was killed by SIGKILL"


def status(code, details=""):
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Failure.REFUSED, RequestRefused),
        (Failure.UNAVAILABLE, EndpointUnavailable),
        (Failure.CANCELLED, EndpointUnavailable),
        (Failure.IN_USE, EngineInUse),
    ],
)
def test_the_code_of_an_engine_decides_whatever_its_sentence_says(failure, kind):
    for sentence in (KILLED, "Stub process [unavailable] Server is stopping"):
        for path in ("", "in ensemble 'prm', "):
            text = path + encode_failure(failure, sentence)
            ended = status(grpc.StatusCode.INVALID_ARGUMENT, text)
            for error in (
                error_of_text("prm", text),
                error_of_status("prm", "127.0.0.1:1", ended, 60),
            ):
                assert type(error) is kind
                assert error.message.endswith(f": {path}{sentence}")


@pytest.mark.parametrize("known", passing_failures(), ids=lambda known: known.text)
def test_what_is_known_by_its_words_alone_is_asked_again(known):
    assert known.text in known.example
    for text in (known.example, f"in ensemble 'prm', {known.example}"):
        assert isinstance(error_of_text("prm", text), EndpointUnavailable)


@pytest.mark.parametrize(
    "text",
    [
        "Request for unknown model: 'prm' is not found",
        "[TensorRT-LLM][ERROR] Prompt length (9) exceeds maximum input length (8).",
        "guided_decoding_guide quotes [unavailable] Server",
    ],
)
def test_any_other_words_refuse_the_request(text):
    assert isinstance(error_of_text("generator", text), RequestRefused)


def test_what_grpc_says_by_its_status():
    def error(code, details=""):
        return error_of_status("prm", "127.0.0.1:1", status(code, details), 60)

    assert isinstance(error(grpc.StatusCode.UNAVAILABLE, "Connection refused"), EndpointUnavailable)
    assert "127.0.0.1:1 is gone: CANCELLED" in error(grpc.StatusCode.CANCELLED).message
    late = error(grpc.StatusCode.DEADLINE_EXCEEDED)
    assert isinstance(late, EndpointTimeout)
    assert "within 60 s" in late.message
    assert isinstance(error(grpc.StatusCode.INVALID_ARGUMENT, "top_k is -1"), RequestRefused)
