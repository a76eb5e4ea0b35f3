"""The host of an `LLM`: its loop, its end, its limits. The engine is scripted here."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tts.build.errors import EngineError
from tts.engines.generate_request import GenerateRequest
from tts.engines.llmapi import host as llmapi_host
from tts.engines.llmapi.host import LlmHost
from tts.engines.responses import Response
from tts.engines.wire import Failure

PATIENCE_S = 20
REQUEST = GenerateRequest(np.arange(4), 1)


class Result:
    """A result that ends when the test says so, or when it is aborted."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.finished = False
        self.outputs = [
            SimpleNamespace(token_ids=[], finish_reason=None, logprobs=[], generation_logits=None)
        ]

    def abort(self) -> None:
        self.outputs[0].finish_reason = "cancelled"
        self.event.set()

    def finish(self) -> None:
        self.outputs[0].token_ids, self.outputs[0].finish_reason = [5], "length"
        self.event.set()

    def __aiter__(self) -> "Result":
        return self

    async def __anext__(self) -> "Result":
        if self.finished:
            raise StopAsyncIteration
        await self.event.wait()
        self.finished = True
        return self


class Llm:
    def __init__(self) -> None:
        self.results: list[Result] = []
        self.healthy = True
        self.closed = False

    def generate_async(self, inputs: list[int], params: Any, streaming: bool) -> Result:
        self.results.append(Result())
        return self.results[-1]

    def shutdown(self) -> None:
        self.closed = True

    def _check_health(self) -> bool:
        return self.healthy


class Served:
    """A host that runs, and the responses to its requests."""

    def __init__(self) -> None:
        self.llm = Llm()
        self.host = LlmHost(self.llm, SimpleNamespace, one_sampler=False)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.running = asyncio.ensure_future(self.host.run(self.ended))
        self.responses: dict[int, list[Response]] = {}

    def accept(self, ticket: int, **options: Any) -> None:
        responses = self.responses.setdefault(ticket, [])
        self.host.accept(ticket, REQUEST, responses.append, **options)

    async def last(self, ticket: int) -> Response:
        """The final response to a request."""
        async with asyncio.timeout(PATIENCE_S):
            while not (responses := self.responses[ticket]) or not responses[-1].final:
                await asyncio.sleep(0)
        return responses[-1]

    async def reached(self, results: int) -> None:
        """Until so many requests are in the engine."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.llm.results) < results:
                await asyncio.sleep(0)


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    served = Served()
    try:
        yield served
    finally:
        if not served.ended.done():
            served.ended.set_result(None)
        await asyncio.wait({served.running})


async def test_a_cancelled_request_is_aborted_or_never_reaches_the_engine():
    async with serving() as served:
        served.accept(1)
        await served.reached(1)
        served.accept(2)
        for ticket in (1, 2):
            served.host.cancel(ticket)
            assert (await served.last(ticket)).finish_reason == "cancelled"
        (result,) = served.llm.results
        assert result.outputs[0].finish_reason == "cancelled"
        served.host.cancel(1)
        served.host.cancel(999)
        await asyncio.sleep(0.01)
        assert [len(responses) for responses in served.responses.values()] == [1, 1]


@pytest.mark.parametrize(
    "bound", [("MAX_REQUESTS", 2), ("MAX_WAITING_BYTES", 2 * REQUEST.bytes_waiting)]
)
async def test_more_requests_than_it_may_hold_and_cold_ones_are_refused(
    monkeypatch: pytest.MonkeyPatch, bound: tuple[str, int]
):
    monkeypatch.setattr(llmapi_host, *bound)
    async with serving() as served:
        for ticket in range(3):
            served.accept(ticket)
        assert "2 requests are in this engine" in str((await served.last(2)).error)
        assert not served.responses[0]
        served.accept(3, cold=True)
        assert (await served.last(3)).failure == Failure.IN_USE
        await served.reached(2)
        for result in served.llm.results:
            result.finish()
        await served.last(1)
        await asyncio.sleep(0)
        served.accept(4)  # nothing of the others counts any more
        await served.reached(3)


async def test_the_end_answers_everyone_and_closes_the_engine():
    async with serving() as served:
        for ticket in range(3):
            served.accept(ticket)
        await served.reached(3)
        served.ended.set_result(None)
        await served.running
        errors = [(await served.last(ticket)).error for ticket in range(3)]
        assert errors == ["the engine is shutting down"] * 3
        assert served.llm.closed


def fails() -> bool:
    raise RuntimeError("injected")


@pytest.mark.parametrize("health", [bool, fails])
async def test_an_engine_that_dies_or_cannot_be_asked_ends_it(
    monkeypatch: pytest.MonkeyPatch, health: Callable[[], bool]
):
    monkeypatch.setattr(llmapi_host, "HEALTH_CHECK_S", 0.001)
    async with serving() as served:
        served.accept(1)
        await served.reached(1)
        assert not served.running.done()
        monkeypatch.setattr(served.llm, "_check_health", health)
        with pytest.raises(EngineError, match="has died"):
            await asyncio.wait_for(served.running, PATIENCE_S)
        assert (await served.last(1)).failure == Failure.UNAVAILABLE
        assert served.llm.closed


async def test_a_callback_that_fails_harms_no_other_request():
    def broken(response: Response) -> None:
        raise ValueError("injected")

    async with serving() as served:
        served.host.accept(1, REQUEST, broken)
        served.accept(2)
        await served.reached(2)
        for result in served.llm.results:
            result.finish()
        assert (await served.last(2)).finish_reason == "length"
