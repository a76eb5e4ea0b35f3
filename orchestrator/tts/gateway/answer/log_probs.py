"""Log-probabilities that no sample comes with: of its prompt, and of tokens that were not drawn.

The engine reads the whole text once more when it is complete, so even a stream has them in one
piece.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

from tts.endpoints.base import GenerateCall

from ..observability import ServedRequest
from ..openai.errors import bad_request
from .generation import Delta, TextGenerator


@dataclass(frozen=True)
class WantedLogs:
    """Which log-probabilities a request asks for."""

    param: str
    """The field that does."""
    top: int = 0
    """How many of the likeliest tokens of each place."""
    echo: bool = False
    """Whether also those of the prompt."""

    @property
    def reads(self) -> bool:
        """Whether a sample does not come with them."""
        return self.echo or self.top > 0


def require_reader(generator: TextGenerator, wanted: WantedLogs) -> None:
    """Raise ApiError where the engine tells nothing of tokens that it has not drawn."""
    if wanted.reads and not generator.reads:
        deployment = generator.models.deployment
        compiled = "generator" in deployment.engines()
        engine = f"target {deployment.target}" if compiled else "the server at generator.url"
        raise bad_request(
            f"{wanted.param} is not supported here: the generator's engine ({engine}) gives "
            "log-probabilities of the tokens that it draws alone, of no others and of no prompt.",
            wanted.param,
            "unsupported_parameter",
        )


async def with_read_logs(
    deltas: AsyncGenerator[Delta, None],
    generator: TextGenerator,
    calls: Sequence[GenerateCall],
    wanted: WantedLogs,
    record: ServedRequest,
    key: str,
) -> AsyncGenerator[Delta, None]:
    """Each sample as one delta, with the log-probabilities of its text. Raises EndpointError."""
    gathered: dict[int, Delta] = {}
    async with aclosing(deltas):
        async for delta in deltas:
            index = delta.sample.index
            whole = gathered.setdefault(index, Delta(delta.sample, ""))
            whole.text += delta.text
            whole.ids += delta.ids
            if delta.finish:
                whole.finish = delta.finish
                await _read(generator, calls[index], whole, wanted, key)
                record.t3 = time.monotonic()
                yield whole


async def _read(
    generator: TextGenerator, call: GenerateCall, whole: Delta, wanted: WantedLogs, key: str
) -> None:
    """Give a whole sample its log-probabilities, and its prompt's."""
    prompt = call.input_ids.tolist()
    said = whole.ids
    if wanted.echo:
        # the end of the sequence, which is in no output, counts as a token to clients of echo
        said = [*said, *([generator.models.end_id] if whole.sample.ended_by_hidden_token else [])]
    ids = [*prompt, *said]
    if len(ids) < 2:
        whole.ids, whole.log_probs, whole.top = ids, [None] * len(ids), [[]] * len(ids)
        return
    read = await generator.log_probs(np.asarray(ids, dtype=np.int32), wanted.top, key)
    log_probs, top = [None, *read.log_probs], [[], *read.top]
    start = 0 if wanted.echo else len(prompt)
    whole.ids, whole.log_probs = ids[start:], log_probs[start:]
    whole.top = top[start:] if wanted.top else []
