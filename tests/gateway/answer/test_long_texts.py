"""Long prompts: filtered and tokenised as short ones are, while others are served."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.base.errors import ContentBlocked
from tts.gateway.answer.prompts import LONG, filtered
from tts.gateway.safety.filters import FilterChain

RULES = "- {term: forbidden, action: redact}\n- {term: poison}\n"


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    file.write_text(RULES)
    return FilterChain.load(file)


@given(before=st.integers(LONG - 12, LONG + 3), word=st.sampled_from(["forbidden", "forbid", ""]))
def test_a_long_text_is_filtered_as_a_whole_wherever_it_is_cut(chain, before, word):
    texts = ["a" * (before - 1) + " " + word + " and so on", "short, forbidden"]
    assert asyncio.run(filtered(chain, texts)) == list(map(chain.input, texts))
    with pytest.raises(ContentBlocked):
        asyncio.run(filtered(chain, [*texts, "poison"]))


def test_others_have_a_turn_between_the_pieces_of_a_long_text(chain):
    async def go():
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await filtered(chain, ["fine " * LONG])
        counting.cancel()
        return turns

    assert asyncio.run(go()) >= 5
