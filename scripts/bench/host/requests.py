"""Sampled requests, and the two ways to have them answered: through Triton, and bare."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import psutil
from tritonclient.grpc import service_pb2, service_pb2_grpc

from scripts.bench.common import process_of
from tts.build import paths
from tts.build.manifest import read_engine_config
from tts.build.openvino.threads import threads_of
from tts.build.spec import Deployment
from tts.engines import wire
from tts.engines.generate_request import GenerateRequest
from tts.engines.pipeline import RUNNING, add_request, open_pipeline
from tts.serving.server.start import RunningServer
from tts.session.embedded import limits_of


@dataclass(frozen=True)
class Work:
    """One sampled request; `stop_words` as on the wire."""

    prompt: tuple[int, ...]
    tokens: int
    seed: int
    stop_words: tuple[tuple[int, ...], ...] = ()

    def tensors(self) -> dict[str, Any]:
        """The request as it goes over the wire."""
        tensors: dict[str, Any] = {
            "input_ids": np.array([self.prompt], np.int32),
            "input_lengths": len(self.prompt),
            "request_output_len": self.tokens,
            "runtime_top_p": 1.0,
            "seed": self.seed,
        }
        if self.stop_words:
            tensors["stop_words_list"] = wire.encode_stop_words(self.stop_words)[None]
        return tensors

    def request(self) -> GenerateRequest:
        """The request as the pipeline takes it."""
        ids = np.array(self.prompt, np.int64)
        return GenerateRequest(
            ids, self.tokens, top_p=1.0, seed=self.seed, stop_words=self.stop_words
        )


class Client:
    """One stream per request, as the contract asks."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def start(self, tensors: dict[str, Any]) -> Any:
        """Send one request; its stream of answers."""
        message = service_pb2.ModelInferRequest(model_name=wire.GENERATOR)
        for name, value in tensors.items():
            array = value if isinstance(value, np.ndarray) else wire.scalar(name, value)
            message.inputs.add(name=name, datatype=wire.INPUTS[name], shape=array.shape)
            message.raw_input_contents.append(array.tobytes())
        return self._stub.ModelStreamInfer(iter([message]), timeout=120)

    async def generate(self, tensors: dict[str, Any]) -> tuple[list[int], str]:
        """Tokens and error, one of which is empty."""
        async for answer in self.start(tensors):
            if answer.error_message:
                return [], answer.error_message
            names = [output.name for output in answer.infer_response.outputs]
            raw = answer.infer_response.raw_output_contents[names.index("output_ids")]
            return np.frombuffer(raw, np.int32).tolist(), ""
        return [], "the stream ended without an answer"

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


class Bare:
    """The pipeline without host and server, doing nothing but the work."""

    def __init__(self, deployment: Deployment) -> None:
        spec = deployment.engines()["generator"]
        folder = paths.engine_dir(deployment.name, "generator")
        self.config = read_engine_config(folder)
        limits = limits_of(spec, self.config)
        self._pipeline = open_pipeline(
            folder, self.config, limits, threads_of(deployment)["generator"]
        )
        self._number = 0

    def run(self, works: list[Work], in_flight: int) -> list[list[int]]:
        """The answers of the bare pipeline, with so many requests in flight."""
        queue = list(reversed(list(enumerate(works))))
        results: list[list[int]] = [[] for _ in works]
        active: dict[int, Any] = {}
        while queue or active:
            while queue and len(active) < in_flight:
                index, work = queue.pop()
                self._number += 1
                handle = add_request(
                    self._pipeline,
                    self._number,
                    work.request(),
                    self.config.vocab_size,
                    log_probs=False,
                )
                active[index] = handle
            self._pipeline.step()
            for index, handle in list(active.items()):
                if handle.get_status().value != RUNNING:
                    (output,) = handle.read_all()
                    results[index] = list(output.generated_ids)
                    del active[index]
        return results


def make_works(bare: Bare, count: int, prompt: int, tokens: int, seed: int) -> list[Work]:
    """So many requests with random prompts."""
    numbers = np.random.default_rng(seed)
    prompts = numbers.integers(5, bare.config.vocab_size, (count, prompt)).tolist()
    return [Work(tuple(ids), tokens, seed * 10**6 + n) for n, ids in enumerate(prompts)]


def processes_of(server: RunningServer, model: str) -> tuple[psutil.Process, list[psutil.Process]]:
    """The tritonserver process; the stub of one model and its engine."""
    root = process_of(server)
    for child in root.children():
        if f"/{model}/1/model.py" in " ".join(child.cmdline()):
            return root, [child, *child.children()]
    raise SystemExit(f"the stub process of {model} was not found")


async def through_grpc(client: Client, works: list[Work], in_flight: int) -> list[list[int]]:
    """The answers through Triton, with so many requests in flight."""
    slots = asyncio.Semaphore(in_flight)

    async def one(work: Work) -> list[int]:
        async with slots:
            tokens, error = await client.generate(work.tensors())
            if error:
                raise SystemExit(f"a good request was refused: {error}")
            return tokens

    return await asyncio.gather(*(one(work) for work in works))
