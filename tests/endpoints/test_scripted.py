"""The scripted pair refuses what an engine refuses, so that tests over it see the same errors."""

import asyncio

import numpy as np
import pytest
from tests.endpoints.scripted import ScriptedGenerator

from tts.build.errors import RequestRefused
from tts.endpoints.base import GenerateCall


@pytest.mark.parametrize(("prompt", "tokens"), [([1, 2], 0), ([1, 2], -1), ([], 5)])
def test_a_request_for_nothing_or_without_a_prompt_is_refused(prompt, tokens):
    generator = ScriptedGenerator([[5]], [6])
    call = GenerateCall(np.array(prompt, dtype=np.int32), tokens, 1, 0.8, 1.0, True)
    with pytest.raises(RequestRefused, match=f"{tokens} tokens after {len(prompt)}"):
        asyncio.run(generator.generate(call))


def test_a_request_for_one_token_gets_one():
    call = GenerateCall(np.array([1], dtype=np.int32), 1, 1, 0.8, 1.0, True)
    assert asyncio.run(ScriptedGenerator([[5, 7]], [6]).generate(call)) == [5]
