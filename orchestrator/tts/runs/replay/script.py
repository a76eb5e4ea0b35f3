"""What engines are to answer, decided without them."""

from __future__ import annotations

from typing import Protocol

from tts.build.tokenizer import Ids
from tts.endpoints.base import GenerateCall
from tts.prompting import Models

_TAIL = 16  # tokens: more than spell any step delimiter


class Script(Protocol):
    """Answers that depend on the request alone, as a real engine's do."""

    def generate(self, call: GenerateCall) -> list[int]:
        """What the generator answers; see endpoints.Generator."""

    def ended(self, call: GenerateCall, ids: list[int]) -> bool:
        """Whether the answer `ids` was ended by the end-of-sequence token, which is not in it."""

    def score(self, input_ids: Ids) -> float:
        """What the verifier answers; see endpoints.Verifier."""


def chain_ended(models: Models, call: GenerateCall, ids: list[int]) -> bool:
    """`Script.ended` of answers in the language of `models`."""
    if len(ids) >= call.max_new_tokens:
        return False
    delimiter = models.deployment.generator.step_delimiter
    return not call.stop_at_step or delimiter not in models.generator.decode(ids[-_TAIL:])
