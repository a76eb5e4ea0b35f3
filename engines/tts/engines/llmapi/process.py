"""An engine's process whose engine is an `LLM`: opened as the first message says, then served.

All is in one event loop. What was answered in one turn of it goes out in one report.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import Any, cast

import numpy as np

from tts.build.errors import EngineError
from tts.build.llmapi.version import (
    check_version,
    has_one_sampler,
    seeded_sampler,
    with_first_cache_manager,
)

from ..engine_messages import Commands, EngineReport, Messages, OpenLlm, ToEngine, encode
from ..generate_request import GenerateRequest
from ..responses import Response
from .host import LlmHost
from .output import sampling_arguments


def open_host(opening: OpenLlm) -> LlmHost:
    """The host of an `LLM` that is open; raises EngineError."""
    # before TensorRT-LLM is imported: with it CUDA is set up, here and in the ranks it starts
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    devices = ",".join(map(str, opening.devices))
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["TRTLLM_VISIBLE_DEVICES"] = devices
    try:
        import tensorrt_llm
    except ImportError as error:
        raise EngineError(
            f"TensorRT-LLM cannot be imported ({error}): target llmapi runs inside NVIDIA's image "
            "of it."
        ) from error
    version = tensorrt_llm.__version__
    if problem := check_version(version):
        raise EngineError(problem)
    one_sampler = has_one_sampler(version)
    try:
        llm = _open(tensorrt_llm, opening.arguments, version)
    except Exception as error:
        raise EngineError(f"TensorRT-LLM {version} does not open the model: {error}") from error
    return LlmHost(llm, tensorrt_llm.SamplingParams, one_sampler=one_sampler, labels=opening.labels)


def _open(tensorrt_llm: Any, arguments: dict[str, Any], version: str) -> Any:
    # an argument that this version does not have is refused now, not with the first request
    probe = GenerateRequest(
        np.zeros(1, np.int64),
        1,
        stop_words=((0,),),
        top_p=1.0,
        return_log_probs=True,
        return_generation_logits=True,
    )
    one_sampler = has_one_sampler(version)
    tensorrt_llm.SamplingParams(**sampling_arguments(probe, one_sampler=one_sampler))
    sampler = seeded_sampler(version) if arguments["cuda_graph_config"] else {}  # if it samples
    cache_fields = tensorrt_llm.llmapi.KvCacheConfig.model_fields
    return tensorrt_llm.LLM(**with_first_cache_manager(arguments, cache_fields), **sampler)


class LlmConnection(asyncio.Protocol):
    """The engine's end of the connection, until it ends."""

    def __init__(self, host: LlmHost) -> None:
        self._messages = Messages(ToEngine)
        self._commands = Commands(host, self._answer)
        self._responses: list[tuple[int, Response]] = []
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        for command in self._commands.of(self._messages.feed(data)):
            command()

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol: nobody is left who wants to know."""
        self.end()

    def end(self) -> None:
        """Let `serve` end."""
        if not self.ended.done():
            self.ended.set_result(None)

    def _answer(self, ticket: int, response: Response) -> None:
        if not self._responses:
            self._loop.call_soon(self._send)
        self._responses.append((ticket, response))

    def _send(self) -> None:
        self._transport.write(encode(EngineReport(self._responses, [])))
        self._responses = []


async def serve(host: LlmHost, connection: socket.socket) -> None:
    """Serve a connection until it ends, or a signal asks for the end; then shut the `LLM` down.

    Raises EngineError if the engine has died.
    """
    loop = asyncio.get_running_loop()
    ours = LlmConnection(host)
    loop.add_signal_handler(signal.SIGTERM, ours.end)
    await loop.create_unix_connection(lambda: ours, sock=connection)
    await host.run(ours.ended)
