"""Long texts are tokenised in a thread: streams of others go on meanwhile.

The tokenizers library releases the interpreter lock while it works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

LONG = 4096
"""Characters up to which the event loop waits: most tokenizers read so many in a millisecond."""
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="tokenise")

T = TypeVar("T")


async def tokenised(characters: int, work: Callable[[], T]) -> T:
    """The result of `work`, which reads so many characters; raises what it raises."""
    if characters <= LONG:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)
