"""What is asked of a generator, whatever it can do."""

import asyncio

import numpy as np

from tts.endpoints.base import GenerateCall
from tts.endpoints.streaming import NewTokens, StreamingGenerator, stream_of

CALL = GenerateCall(np.int32([1, 2]), 9, 1, 0.8, 1.0, stop_at_step=False)


class Whole:
    async def generate(self, call):
        return [int(token) for token in call.input_ids]


class OneByOne(StreamingGenerator):
    async def stream(self, call):
        for token in call.input_ids:
            yield NewTokens([int(token)])


async def pieces(generator):
    return [new async for new in stream_of(generator, CALL)]


def test_a_generator_that_has_only_generate_gives_its_output_in_one_piece():
    assert asyncio.run(pieces(Whole())) == [NewTokens([1, 2], final=True)]


def test_a_generator_that_streams_gives_each_piece_and_generates_by_collecting_them():
    assert asyncio.run(pieces(OneByOne())) == [NewTokens([1]), NewTokens([2])]
    assert asyncio.run(OneByOne().generate(CALL)) == [1, 2]
