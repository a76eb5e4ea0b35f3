"""Section `verifier`: the engine that scores steps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from tts.compat import Self

from .dialogue import ANSWERS, Labels, Template, VerifierDialogue, checked_prompt
from .engine import EngineSpec
from .section import Count, FilePath

HeadKind = Literal["labels", "classification", "value"]
"""What a verifier judges with: labels of its language head, or a head (verifier_head.py)."""


class VerifierSpec(EngineSpec):
    """The process reward model that scores steps."""

    in_flight_tokens: Count
    """Upper bound of prompt tokens that the orchestrator keeps in flight (N_PRM)."""
    group_tokens: Count | None = None
    """Hold requests back until they have so many tokens, or a group of siblings is complete."""
    group_wait_ms: Annotated[float, Field(gt=0, le=10_000)] = 10.0
    """Longest time for which a request is held back (with group_tokens only)."""
    format: VerifierDialogue = "rlhflow"
    """How questions and steps are presented to it (docs/verifiers.md)."""
    head: HeadKind | None = None
    """What it judges with; None: what the architecture in its config.json says."""
    step_tag: Annotated[str, Field(min_length=1)] | None = None
    """The token after which a step's score is read (format math-shepherd only; default "ки")."""
    template: Template | None = None
    """The dialogue of format custom."""
    prompt_file: FilePath | None = None
    """The file of `prompt`, relative to the deployment file; `load_deployment` reads it."""
    prompt: Annotated[str, Field(max_length=100_000)] | None = None
    """What an instruct model is asked of a step (format prompted only); see PROMPT_PLACES."""
    system_prompt: str | None = None
    """What the model is told before the question (format likelihood only)."""
    labels: Labels = Labels()

    @model_validator(mode="before")
    @classmethod
    def _answers_of_a_prompt(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("format") == "prompted" and "labels" not in data:
            return data | {"labels": ANSWERS}
        return data

    @field_validator("prompt")
    @classmethod
    def _asks(cls, prompt: str | None) -> str | None:
        return prompt if prompt is None else checked_prompt(prompt)

    @model_validator(mode="after")
    def _fields_of_its_format(self) -> Self:
        if self.step_tag is not None and self.format != "math-shepherd":
            raise ValueError(
                f"step_tag is {self.step_tag!r}, but format is {self.format}; only format "
                "math-shepherd has a step tag"
            )
        if self.template is not None and self.format != "custom":
            raise ValueError(
                f"template is given, but format is {self.format}; only format custom has one"
            )
        if self.template is None and self.format == "custom":
            raise ValueError("format is custom, so template is required: head, answer and turn")
        if self.format != "prompted" and (self.prompt_file or self.prompt is not None):
            raise ValueError(
                f"a prompt is given, but format is {self.format}; only format prompted has one"
            )
        if self.format == "prompted" and self.prompt_file is None and self.prompt is None:
            raise ValueError(
                "format is prompted, so prompt_file is required: the text that asks whether a step "
                "is right (docs/verifiers.md)"
            )
        if self.format != "likelihood" and self.system_prompt is not None:
            raise ValueError(
                f"system_prompt is given, but format is {self.format}; only format likelihood has "
                "one"
            )
        if self.format == "likelihood" and self.labels != Labels():
            raise ValueError("labels are given, but format likelihood reads none; remove them")
        return self

    @model_validator(mode="after")
    def _budget(self) -> Self:
        if self.in_flight_tokens < self.max_seq_len:
            raise ValueError(
                f"in_flight_tokens is {self.in_flight_tokens} but max_seq_len is "
                f"{self.max_seq_len}; the budget must let one full request through"
            )
        return self
