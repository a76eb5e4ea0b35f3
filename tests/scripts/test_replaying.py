"""Endpoints that let engines do the work and the script answer."""

import asyncio

import numpy as np
import pytest
from scripts.bench.schedules.replaying import ReplayGenerator, ReplayVerifier
from tests.runs.replay.recordings import Endless, load, recorded_run

from tts.build.errors import EndpointError
from tts.endpoints.base import GenerateCall, ScoreCall


@pytest.fixture
def recorded(tiny_deployment, tmp_path):
    return recorded_run(tiny_deployment, tmp_path / "run")


def test_an_engine_that_ends_by_itself_is_an_error(tiny_deployment, recorded):
    class Ends(Endless):
        async def generate(self, call):
            return (await super().generate(call))[:-1]

    script = load(recorded[1], tiny_deployment)
    call = GenerateCall(np.asarray([1], dtype=np.int32), 50, 1, 0.8, 1.0, stop_at_step=True)
    with pytest.raises(EndpointError, match="asked for exactly"):
        asyncio.run(ReplayGenerator(Ends(), script).generate(call))


def test_a_cancelled_replay_cancels_on_the_engine(tiny_deployment, recorded):
    cancelled = []

    class Hangs:
        async def generate(self, call):
            await self.score(call)

        async def score(self, call):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append(call)
                raise

    async def main():
        ids = np.asarray([1], dtype=np.int32)
        call = GenerateCall(ids, 50, 1, 0.8, 1.0, stop_at_step=True)
        for awaited in (
            ReplayGenerator(Hangs(), script).generate(call),
            ReplayVerifier(Hangs(), script).score(ScoreCall(ids)),
        ):
            task = asyncio.ensure_future(awaited)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    script = load(recorded[1], tiny_deployment)
    asyncio.run(main())
    assert len(cancelled) == 2
