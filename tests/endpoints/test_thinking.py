"""Thinking that comes in pieces of any size ends where it ends in one piece."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tts.build.spec.generator import ThinkingSpec
from tts.build.thinking import thinking_of
from tts.build.tokenizer import Tokenizer
from tts.endpoints.base import GenerateCall
from tts.endpoints.thinking import ThinkingWriter

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
