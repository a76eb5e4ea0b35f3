"""What is asked of a stand-in for a server, through the endpoints."""

from contextlib import asynccontextmanager

import numpy as np
from tests.endpoints.openai.stand_in import END, TOKENIZER

from tts.endpoints.base import GenerateCall
from tts.endpoints.openai.generator import OpenAIGenerator
from tts.endpoints.openai.server import OpenAIServer
from tts.endpoints.streaming import OutputEnds, stream_of

PROMPT = np.asarray([30, 31, 32], dtype=np.int32)
CALL = GenerateCall(PROMPT, 12, 7, 1.0, 1.0, stop_at_step=False)


@asynccontextmanager
async def opened(stand_in, *, end_words=(), **options):
    """A server that has been asked what it is, and its generator."""
    async with stand_in as url, OpenAIServer(url, patience_s=5, **options) as server:
        await server.probe()
        stand_in.asked.clear()
        yield (
            server,
            OpenAIGenerator(
                server,
                tokenizer=TOKENIZER,
                ends=OutputEnds(END, end_words),
                step_delimiter="\n\n",
            ),
        )


async def generated(stand_in, call=CALL, **options):
    """What a sample is, and the bodies of the requests for it."""
    async with opened(stand_in, **options) as (_, generator):
        return await generator.generate(call), stand_in.asked


async def streamed(stand_in, call=CALL, **options):
    """The pieces of a sample."""
    async with opened(stand_in, **options) as (_, generator):
        return [new async for new in stream_of(generator, call)]
