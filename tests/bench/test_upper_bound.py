"""The useful work of a run sent again: everything once, in order, within the budget."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.bench.upper_bound import KeptGenerator, KeptVerifier, send_all
from tts.endpoints.base import GenerateCall, ScoreCall, VerifierResult


@given(st.lists(st.integers(1, 12), max_size=30), st.integers(1, 10), st.randoms())
def test_everything_is_sent_once_in_order_and_within_the_budget(costs, budget, random):
    started, in_flight = [], []

    async def send(work):
        started.append(work)
        in_flight.append(work)
        costing = [costs[place] for place in in_flight]
        assert sum(costing) <= budget or len(costing) == 1
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        in_flight.remove(work)

    asyncio.run(send_all(range(len(costs)), costs.__getitem__, budget, send))
    assert started == list(range(len(costs)))
    assert in_flight == []


def test_the_budget_is_filled():
    most = 0

    async def run():
        in_flight = 0

        async def send(_):
            nonlocal in_flight, most
            in_flight += 1
            most = max(most, in_flight)
            await asyncio.sleep(0)
            in_flight -= 1

        await send_all(range(20), lambda _: 1, 4, send)

    asyncio.run(run())
    assert most == 4


def call(seed):
    return GenerateCall(np.array([1, seed], np.int32), 5, seed, 0.8, 1.0, stop_at_step=True)


class Engine:
    """Answers at once; refuses what is told to it."""

    def __init__(self, refused):
        self.refused = refused

    async def generate(self, call):
        return self._answer(call.seed, [7])

    async def score(self, call):
        return self._answer(int(call.input_ids[-1]), VerifierResult(0.5))

    def _answer(self, number, answer):
        if number in self.refused:
            raise RuntimeError(f"refused {number}")
        return answer


def test_what_was_answered_is_kept_once_and_what_failed_is_not():
    engine = Engine(refused={3})
    generator, verifier = KeptGenerator(engine), KeptVerifier(engine)

    async def run():
        for seed in (5, 3, 4, 5):
            dialogue = ScoreCall(np.array([9, seed], np.int32))
            if seed in engine.refused:
                with pytest.raises(RuntimeError):
                    await generator.generate(call(seed))
                with pytest.raises(RuntimeError):
                    await verifier.score(dialogue)
            else:
                assert await generator.generate(call(seed)) == [7]
                assert await verifier.score(dialogue) == VerifierResult(0.5)

    asyncio.run(run())
    assert [call.seed for call in generator.useful({3, 4, 5})] == [5, 4]
    assert [call.seed for call in generator.useful({4})] == [4]
    assert [int(call.input_ids[-1]) for call in verifier.calls.values()] == [5, 4]
