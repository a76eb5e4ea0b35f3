"""Long texts: streams of others go on while one is filtered and tokenised.

Filters work on the event loop, a piece at a time, with a turn for everything else in between. A
tokenizer lets go of the interpreter lock for long texts, so it works in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tts.build.tokenizer import LONG

from .safety import FilterChain

_THREADS = ThreadPoolExecutor(2, thread_name_prefix="tokenise")

T = TypeVar("T")


async def filtered(filters: FilterChain, texts: Sequence[str]) -> list[str]:
    """Prompts as they may go on; raises ContentBlocked."""
    if not filters.of_input or sum(map(len, texts)) <= LONG:
        return list(map(filters.input, texts))
    passed = []
    for text in texts:
        stream, parts = filters.prompt(), []
        for start in range(0, len(text), LONG):
            parts.append(stream.feed(text[start : start + LONG]))
            await asyncio.sleep(0)
        passed.append("".join(parts) + stream.end())
    return passed


async def tokenised(characters: int, work: Callable[[], T]) -> T:
    """The result of `work`, which reads so many characters; raises what it raises."""
    if characters <= LONG:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)
