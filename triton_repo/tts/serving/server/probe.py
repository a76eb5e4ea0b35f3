"""Asking a server over gRPC: which deployment does it serve, and do its models really answer?

Triton's "ready" is not enough: a model whose Python stub was killed stays ready while every request
fails. Only an inference tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tts.base.errors import ServerError
from tts.base.owner import require_unforked
from tts.build.spec import Role
from tts.engines import wire

from ..repository.digest import DIGEST

SERVED: Mapping[Role, str] = {"generator": wire.GENERATOR, "verifier": wire.PRM}
"""The models that clients talk to; of an engine that runs elsewhere there is none."""

# one token in, one token out
_REQUEST = {
    "input_ids": 0,
    "input_lengths": 1,
    "request_output_len": 1,
    "return_generation_logits": 1,
}
_DOWN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@contextmanager
def connect(address: str) -> Iterator[grpc.Channel]:
    """A plain channel to `host:port` that ignores any proxy in the environment."""
    require_unforked("gRPC")
    # its own subchannel: a shared one would keep the back-off of an earlier refused connection
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(address, options=options) as channel:
        yield channel


def is_ready(address: str, timeout_s: float = 1.0) -> bool:
    """Whether a Triton server answers at an address and says that all its models are ready."""
    try:
        with connect(address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            return bool(stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=timeout_s).ready)
    except grpc.RpcError:
        return False


def served_digest(address: str, timeout_s: float = 2.0) -> str | None:
    """Digest of the deployment served at an address; empty if it is another kind of server.

    None if nothing answers there.
    """
    try:
        with connect(address) as channel:
            config = next(_configs(channel, timeout_s), None)
    except grpc.RpcError as error:
        return None if error.code() in _DOWN else ""
    if config is None:
        return ""
    return str(config.parameters[DIGEST].string_value) if DIGEST in config.parameters else ""


def probe(address: str, timeout_s: float = 30.0) -> None:
    """Generate one token and score one text, as far as both are served there.

    Raises ServerError naming the model that failed.
    """
    models = [SERVED[role] for role in served_roles(address)]
    with connect(address) as channel:
        for model in models:
            try:
                _infer(channel, model, timeout_s)
            except grpc.RpcError as error:
                raise ServerError(
                    f"Model {model} at {address} fails a one-token request: "
                    f"{error.code().name}: {error.details()}"
                ) from error


def _infer(channel: grpc.Channel, model: str, timeout_s: float) -> None:
    config = _config(channel, model, timeout_s)
    request = _request(config)
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    if not config.model_transaction_policy.decoupled:
        stub.ModelInfer(request, timeout=timeout_s)
        return
    for response in stub.ModelStreamInfer(iter([request]), timeout=timeout_s):
        if response.error_message:
            raise ServerError(f"Model {model} fails a one-token request: {response.error_message}")


def served_roles(address: str, timeout_s: float = 2.0) -> list[Role]:
    """Which engines are served at an address; all where nothing answers."""
    try:
        with connect(address) as channel:
            there = {config.name for config in _configs(channel, timeout_s)}
    except grpc.RpcError:
        return list(SERVED)
    return [role for role, model in SERVED.items() if model in there] or list(SERVED)


def _configs(channel: grpc.Channel, timeout_s: float) -> Iterator[Any]:
    """The configurations of the models that are there."""
    for model in SERVED.values():
        try:
            yield _config(channel, model, timeout_s)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise


def _config(channel: grpc.Channel, model: str, timeout_s: float) -> Any:
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    return stub.ModelConfig(service_pb2.ModelConfigRequest(name=model), timeout=timeout_s).config


def _request(config: Any) -> Any:
    request = service_pb2.ModelInferRequest(model_name=config.name)
    for tensor in config.input:
        # optional ones stay out: a generator's engine may not be able to return its logits
        if tensor.name in _REQUEST and (tensor.name == "input_ids" or not tensor.optional):
            value = wire.scalar(tensor.name, _REQUEST[tensor.name])
            datatype = wire.INPUTS[tensor.name]
            request.inputs.add(name=tensor.name, datatype=datatype, shape=value.shape)
            request.raw_input_contents.append(value.tobytes())
    return request
