"""The Triton client where no server is needed; tests/server has the rest."""

import asyncio

import numpy as np
import pytest

from tts.build.errors import EndpointUnavailable, RequestRefused
from tts.orchestrator.clients import triton
from tts.orchestrator.clients.triton import TritonConnection, TritonVerifier


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("input_ids holds the id 9; the vocabulary has 5", RequestRefused),
        ("the engine failed: out of memory", EndpointUnavailable),
        ("Failed to process the request: Stub process 'x' is not healthy.", EndpointUnavailable),
    ],
)
def test_only_a_broken_engine_is_worth_asking_again(message, kind):
    assert isinstance(triton._refused("generator", message), kind)


def test_a_server_that_is_not_there_is_asked_a_few_times_and_then_named(monkeypatch):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(triton.asyncio, "sleep", sleep)

    async def go():
        async with TritonConnection("127.0.0.1:1") as connection:
            await TritonVerifier(connection).score(np.asarray([1, 2], dtype=np.int32))

    with pytest.raises(EndpointUnavailable, match=r"server at 127\.0\.0\.1:1 is gone"):
        asyncio.run(go())
    assert waits == [0.2, 0.4, 0.8]
