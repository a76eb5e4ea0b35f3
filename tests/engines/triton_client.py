"""A plain gRPC client of the two engine models."""

import time
import urllib.request

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tts.engines import wire
from tts.serving.server.start import RunningServer

PROMPT = tuple(range(10, 40))
FINAL = "triton_final_response"


class Client:
    def __init__(self, server: RunningServer) -> None:
        self.metrics_url = f"http://{server.addresses.metrics}/metrics"
        self.channel = grpc.insecure_channel(server.addresses.grpc)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def open(self, request):
        """Start one request on a stream of its own; returns the call, an iterator of answers."""
        return self.stub.ModelStreamInfer(iter([request]), timeout=60)

    def generate(self, **tensors) -> tuple[list[int], str]:
        """Tokens of the one response and its error, one of which is empty."""
        (answer,) = self.open(infer("generator", **tensors))
        if answer.error_message:
            return [], answer.error_message
        assert answer.infer_response.parameters[FINAL].bool_param
        return outputs(answer.infer_response)["output_ids"].ravel().tolist(), ""

    def score(self, model="prm", **tensors):
        tensors = {"output": 1, "return_generation_logits": True, **tensors}
        return outputs(self.stub.ModelInfer(infer(model, **tensors), timeout=60))

    def gauges(self, model: str) -> dict[str, float]:
        """The nv_trt_llm_* gauges of a model by their label's value."""
        with urllib.request.urlopen(self.metrics_url, timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        found = {}
        for line in lines:
            if line.startswith("nv_trt_llm_") and f'model="{model}"' in line:
                family, _, labels = line.partition("{")
                values = [part.split('"')[1] for part in labels.split(",")]
                (kind,) = (v for v in values if v not in (model, "1"))
                found[f"{family}/{kind}"] = float(line.rsplit(" ", 1)[1])
        return found

    def at_rest(self, model: str) -> bool:
        """Whether the gauges come to show that the engine holds nothing."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            gauges = self.gauges(model)
            used = gauges.get("nv_trt_llm_kv_cache_block_metrics/used", 0)
            if gauges["nv_trt_llm_request_metrics/active"] == used == 0:
                return True
            time.sleep(0.05)
        return False


def infer(model, *, prompt=PROMPT, output=8, request_id="", names=(), empty_final=False, **tensors):
    """A ModelInferRequest; a tensor given as None is left out."""
    given = {
        "input_ids": np.array([prompt], dtype=np.int32),
        "input_lengths": wire.scalar("input_lengths", len(prompt)),
        "request_output_len": wire.scalar("request_output_len", output),
        **tensors,
    }
    request = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    if empty_final:
        request.parameters["triton_enable_empty_final_response"].bool_param = True
    for name in names:
        request.outputs.add(name=name)
    kinds = {np.dtype(kind): name for name, kind in wire.DTYPES.items()}
    for name, value in given.items():
        if value is None:
            continue
        array = value if isinstance(value, np.ndarray) else wire.scalar(name, value)
        datatype = kinds.get(array.dtype, "INT64")
        request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    return request


def outputs(response) -> dict[str, np.ndarray]:
    return {
        output.name: np.frombuffer(raw, dtype=wire.DTYPES[output.datatype]).reshape(output.shape)
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    }


def sampled(seed=1, **tensors):
    return {"runtime_top_p": 1.0, "seed": seed, **tensors}
