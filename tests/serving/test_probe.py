"""Whether a server's models answer, asked of one that speaks Triton's protocol."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tts.base.errors import ServerError
from tts.serving.repository.digest import DIGEST
from tts.serving.server.probe import probe, served_digest


class Models(service_pb2_grpc.GRPCInferenceServiceServicer):
    """A generator that streams and a verifier that does not; either may fail."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.asked: list[Any] = []

    def ModelConfig(self, request: Any, context: Any) -> Any:
        answer = service_pb2.ModelConfigResponse()
        answer.config.name = request.name
        answer.config.parameters[DIGEST].string_value = "the digest"
        answer.config.model_transaction_policy.decoupled = request.name == "generator"
        for name, optional in (("input_ids", False), ("return_generation_logits", True)):
            answer.config.input.add(name=name, optional=optional)
        return answer

    def ModelInfer(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        if request.model_name == self.fails:
            context.abort(grpc.StatusCode.INTERNAL, "its stub is gone")
        return service_pb2.ModelInferResponse()

    def ModelStreamInfer(self, requests: Any, context: Any) -> Iterator[Any]:
        for request in requests:
            self.asked.append(request)
            error = "its stub is gone" if request.model_name == self.fails else ""
            yield service_pb2.ModelStreamInferResponse(error_message=error)


@contextmanager
def answering(models: Models) -> Iterator[str]:
    """The address of a server with these models."""
    server = grpc.server(ThreadPoolExecutor(2))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(models, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_each_model_is_asked_for_one_token_without_what_is_optional() -> None:
    models = Models()
    with answering(models) as address:
        probe(address)
        assert served_digest(address) == "the digest"
    assert [request.model_name for request in models.asked] == ["generator", "prm"]
    for request in models.asked:
        assert [tensor.name for tensor in request.inputs] == ["input_ids"]


@pytest.mark.parametrize("model", ["generator", "prm"])
def test_a_model_that_fails_is_named(model: str) -> None:
    with answering(Models(model)) as address, pytest.raises(ServerError) as failed:
        probe(address)
    assert f"Model {model}" in failed.value.message
    assert failed.value.message.endswith("its stub is gone")


def test_where_nothing_answers_nothing_is_served() -> None:
    assert served_digest("127.0.0.1:1") is None
