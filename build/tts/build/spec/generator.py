"""Section `generator`: the model that writes steps, and how it thinks in front of its answer."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, StrictBool, model_validator

from .engine import EngineSpec
from .section import Count, RoleSpec, Section

Mark = Annotated[str, Field(min_length=1, max_length=200)]


class ThinkingSpec(Section):
    """How a generator that thinks before it answers does so, and how long it may."""

    enabled: StrictBool = True
    """Whether it thinks at all; false where the chat template only looks as if it did."""
    budget_tokens: Count | None = None
    """Most tokens of the thinking; at that length it is closed by `closing_text`, which counts."""
    closing_text: Annotated[str, Field(max_length=10_000)] | None = None
    """What closes the thinking where its budget ends; unset: the closing mark alone."""
    steps: Literal["whole", "paragraphs"] = "whole"
    """Whether the thinking is one step, which is not scored, or is cut at ends of paragraphs."""
    step_tokens: Count = 256
    """The least tokens of a step of the thinking, with `steps: paragraphs`."""
    opens: Mark | None = None
    """The mark that opens the thinking; unset: read from the chat template."""
    closes: Mark | None = None
    """The mark that closes it."""

    @model_validator(mode="after")
    def _both_marks(self) -> Self:
        if (self.opens is None) is not (self.closes is None):
            raise ValueError("opens and closes belong together: state both, or neither")
        if self.opens is not None and self.opens == self.closes:
            raise ValueError("opens and closes are the same mark; they must differ")
        return self

    def require_room(self, field: str, most: int, what: str) -> None:
        """Raise ValueError for a budget that fills the `most` tokens of a field that counts it."""
        if self.budget_tokens is not None and self.budget_tokens >= most:
            raise ValueError(
                f"thinking.budget_tokens is {self.budget_tokens}, but {field}, which includes it, "
                f"is {most}, which leaves no room for {what}"
            )


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
        self.thinking.require_room("max_seq_len", self.max_seq_len, "an answer")
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
