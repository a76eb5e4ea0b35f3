"""The answer of a search in the form that was asked for.

Where a box can hold every answer of the form, the search holds its boxes to it, and the answer is
what stands in the box. Otherwise, and where the chosen completion has no box, the generator goes on
from the completion and writes the answer under the form's grammar.
"""

from __future__ import annotations

import time
from asyncio import timeout
from contextlib import aclosing

import numpy as np

from tts.build.thinking import Thinking
from tts.endpoints.base import GenerateCall
from tts.grading.extract import boxed_answer

from ..call import Call
from ..openai.errors import too_late
from ..openai.requests import Request
from .structured import OutputForm

LEAD = "\n\n\\boxed{"
"""Text between a completion and the answer that is added to it."""
LEAST_ROOM = 16
"""Tokens that must be left for an answer, or it is written without the completion before it."""


class ClosingAnswer:
    """The writer of one search's answer in the form that was asked for."""

    def __init__(
        self,
        call: Call[Request],
        prompt: list[int],
        form: OutputForm,
        until: float,
        thinking: Thinking | None,
    ) -> None:
        """`until`: when it must be complete, on the monotonic clock.

        `thinking`: the prompt ends inside it.
        """
        self._call = call
        self._prompt = prompt
        self._form = form
        self._until = until
        self._thinking = thinking
        self.tokens = 0
        """Tokens that were generated for it."""

    async def write(self, text: str, ids: list[int]) -> tuple[str, str]:
        """The answer of a completion, given as text and as token ids, and why it ends."""
        if self._form.in_box and (answer := boxed_answer(text)) is not None:
            return answer, "stop"
        request, record = self._call.request, self._call.record
        generator = self._call.service.generator
        lead = generator.models.generator.encode(LEAD)
        closing = self._thinking.closing_ids if self._thinking else ()
        closed = self._thinking is None or self._thinking.end(ids) is not None
        prompt = [*self._prompt, *ids, *(() if closed else closing), *lead]
        if generator.context - len(prompt) < LEAST_ROOM:
            prompt = [*self._prompt, *closing, *lead]
        generate_call = GenerateCall(
            np.asarray(prompt, dtype=np.int32),
            generator.room(prompt, request.limit),
            0,
            0.0,
            1.0,
            stop_at_step=False,
            guide=self._form.guide,
        )
        sample = generator.sample(0, generate_call, request)
        answer = ""
        try:
            async with timeout(max(0.0, self._until - time.monotonic())):
                async with aclosing(generator.deltas(generate_call, sample, record, "")) as deltas:
                    async for delta in deltas:
                        answer += delta.text
        except TimeoutError:
            raise too_late("The answer was not complete within the deadline.") from None
        finally:  # also of an answer that is not complete
            self.tokens = record.answer_tokens = sample.tokens
        return answer, sample.finish or "stop"
