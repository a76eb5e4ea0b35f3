"""Section `generator.thinking`: the part of a chain in front of its answer."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, model_validator

from .section import Count, Section

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
