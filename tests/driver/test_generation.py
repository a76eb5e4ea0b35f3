"""Tokens that a watch reads as they come, from servers that break streams off."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.base.errors import EndpointUnavailable
from tts.driver.generation import MAX_BROKEN_STREAMS, WatchedGenerator
from tts.endpoints.base import GenerateCall
from tts.endpoints.streaming import NewTokens, StreamingGenerator
from tts.search import Confidence, ConfidenceWatch

CALL = GenerateCall(np.array([1, 2], np.int32), 32, 7, 0.8, 1.0, False)
LOG_PROBS = [-0.1, -0.2, -0.1, -0.4, -3.0, -3.0, -0.1, -0.1]


class BreaksOff(StreamingGenerator):
    """Gives the tokens 0, 1, 2, ...; its streams break off after so many, one after the other."""

    def __init__(self, breaks):
        self.breaks, self.waits = list(breaks), 0

    async def stream(self, call):
        if call.max_new_tokens == 1:
            self.waits += 1
            yield NewTokens([0], [-0.1], final=True)
            return
        after = self.breaks.pop(0) if self.breaks else None
        for token, log_prob in enumerate(LOG_PROBS):
            if token == after:
                raise EndpointUnavailable("The server is gone.")
            yield NewTokens([token], [log_prob], final=token == len(LOG_PROBS) - 1)


def watched(breaks, floor):
    generator = BreaksOff(breaks)
    watching = WatchedGenerator(generator, ConfidenceWatch(Confidence(2, floor)))
    return asyncio.run(watching.generate(CALL)), watching.watch, generator


@given(
    st.lists(st.integers(0, 3), max_size=MAX_BROKEN_STREAMS),
    st.sampled_from([-100.0, -1.0, -0.2]),
)
def test_a_stream_that_breaks_off_begins_anew_with_the_same_tokens_and_confidence(breaks, floor):
    ids, watch, _ = watched([], floor)
    again, same, generator = watched(breaks, floor)
    assert (again, same.weakest, same.cut) == (ids, watch.weakest, watch.cut)
    assert generator.waits == len(breaks) - len(generator.breaks)


def test_one_that_breaks_off_again_and_again_fails():
    with pytest.raises(EndpointUnavailable):
        watched([0] * (MAX_BROKEN_STREAMS + 1), -100.0)
