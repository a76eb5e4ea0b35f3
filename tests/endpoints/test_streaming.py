"""What is asked of a generator, whatever it can do; thinking written by several requests."""

import asyncio
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tts.build.spec.generator import ThinkingSpec
from tts.build.thinking import thinking_of
from tts.build.tokenizer import Tokenizer
from tts.endpoints.base import GenerateCall
from tts.endpoints.streaming import NewTokens, StreamingGenerator, stream_of
from tts.endpoints.thinking import ThinkingWriter

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


CHECKPOINTS = Path(__file__).resolve().parents[2] / "engines" / "checkpoints"
SPELLED = ThinkingSpec(opens="(", closes="= 12.", closing_text="= 12.", budget_tokens=40)
BY_TOKEN = thinking_of(Tokenizer(CHECKPOINTS / "demo-thinking"), ThinkingSpec(budget_tokens=40))
BY_TEXT = thinking_of(Tokenizer(CHECKPOINTS / "demo-generator"), SPELLED)


@given(
    st.sampled_from([BY_TOKEN, BY_TEXT]),
    st.text("12 =.", max_size=20),
    st.booleans(),
    st.text("12 =.", max_size=9),
    st.data(),
)
def test_pieces_end_where_the_whole_ends(thinking, before, closes, behind, data):
    mark = thinking.marks.closes if closes else ""
    tokens = thinking.tokenizer.encode(before + mark + behind)
    writer = ThinkingWriter(thinking, len(tokens), closes=True)
    taken = 0
    while taken < len(tokens) and not writer.closed:
        size = data.draw(st.integers(1, len(tokens) - taken))
        taken += writer.take(tokens[taken : taken + size])
    end = thinking.end(tokens)
    assert writer.closed == (end is not None)
    assert writer.ids == tokens[:end]
    writer.finish(truncated=True)
    assert writer.closed
    assert writer.ids == tokens[:end] + ([] if end else list(thinking.closing_ids))
    call = GenerateCall(np.zeros(3, np.int32), 50, 1, 0.8, 1.0, True)
    answer = writer.answer_request(call, lead=[7])
    assert answer.input_ids.tolist() == [0, 0, 0, *writer.ids, 7]
    assert answer.max_new_tokens == 50 - len(writer.ids)
