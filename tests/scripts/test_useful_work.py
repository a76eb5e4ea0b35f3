"""The useful work of a run, as it was sent: what was answered, and nothing else."""

import asyncio

import numpy as np
import pytest
from scripts.bench.schedules.runs import KeptGenerator, KeptVerifier

from tts.endpoints.base import GenerateCall, ScoreCall, VerifierResult


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
