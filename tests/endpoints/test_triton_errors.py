"""Which error of ours an error of a Triton server becomes."""

import grpc
import pytest

from tts.base.errors import EndpointError, EndpointTimeout, EndpointUnavailable, RequestRefused
from tts.endpoints.triton_errors import (
    BY_FAILURE,
    EngineInUse,
    ErrorAnswer,
    Translation,
    error_of_text,
)
from tts.engines.wire import Failure, encode_failure
from tts.serving.contract import passing_failures

KILLED = "the engine's process was killed by SIGKILL"


def status(code, details=""):
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


def translated(error, model="prm"):
    with pytest.raises(EndpointError) as raised, Translation(model, "127.0.0.1:1"):
        raise error
    return raised.value


def test_no_code_of_an_engine_is_unmapped():
    assert BY_FAILURE.keys() == set(Failure)


@pytest.mark.parametrize("code", grpc.StatusCode)
def test_every_status_becomes_the_error_of_the_table(code):
    """A refused request is not sent again; what may pass is."""
    passing = (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    late = code is grpc.StatusCode.DEADLINE_EXCEEDED
    kind = EndpointUnavailable if code in passing else RequestRefused
    error = translated(status(code, "what the server says"))
    assert type(error) is (EndpointTimeout if late else kind)
    assert "127.0.0.1:1" in error.message or "what the server says" in error.message


def test_what_is_an_error_of_ours_or_no_error_of_a_server_passes_unchanged():
    for error in (EngineInUse("x"), ValueError("y")):
        with pytest.raises(type(error)) as raised, Translation("prm", "127.0.0.1:1"):
            raise error
        assert raised.value is error


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
            for error in (translated(ErrorAnswer(text)), translated(ended)):
                assert type(error) is kind
                assert error.message.endswith(f": {path}{sentence}")


@pytest.mark.parametrize("known", passing_failures(), ids=lambda known: known.text)
def test_what_is_known_by_its_words_alone_is_asked_again(known):
    assert known.text in known.example
    for text in (known.example, f"in ensemble 'prm', {known.example}"):
        assert isinstance(translated(ErrorAnswer(text)), EndpointUnavailable)
        ended = status(grpc.StatusCode.INTERNAL, text)
        assert isinstance(translated(ended), EndpointUnavailable)


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


def test_a_cancelled_call_is_a_server_that_is_gone():
    error = translated(status(grpc.StatusCode.CANCELLED))
    assert "127.0.0.1:1 is gone: CANCELLED" in error.message
