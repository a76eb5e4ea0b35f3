"""Section `generator`: the model that writes steps."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, PrivateAttr, StrictBool, model_validator

from .engine import EngineSpec
from .role import RoleSpec
from .section import Count
from .thinking import ThinkingSpec


class GeneratorRole(RoleSpec):
    """How the LLM that writes steps is asked, wherever it runs."""

    in_flight_requests: Count
    """Upper bound of requests that the orchestrator keeps in flight (see `tts tune`)."""
    system_prompt: str | None = None
    """The system message in front of every question."""
    step_delimiter: Annotated[str, Field(min_length=1)] = "\n\n"
    """A step ends where this string appears in the text."""
    thinking: ThinkingSpec = ThinkingSpec()
    """How it thinks before it answers, if its chat template says so."""
    guided_decoding: StrictBool = False
    """Allow searches to constrain answers by a schema or expression (xgrammar)."""

    @model_validator(mode="after")
    def _leaves_room(self) -> Self:
        budget = self.thinking.budget_tokens
        if budget is not None and budget >= self.max_seq_len:
            raise ValueError(
                f"thinking.budget_tokens is {budget}, but max_seq_len, which includes it, is "
                f"{self.max_seq_len}, which leaves no room for an answer"
            )
        return self


class GeneratorSpec(GeneratorRole, EngineSpec):
    """The LLM that writes steps, compiled."""

    _judges: bool = PrivateAttr(default=False)

    @property
    def judges(self) -> bool:
        """See EngineSpec: whether it is the verifier as well, which is read at its logits."""
        return self._judges

    def judging(self, judges: bool) -> Self:
        """A copy that is the verifier as well, or is not."""
        copied = self.model_copy()
        copied._judges = judges
        return copied
