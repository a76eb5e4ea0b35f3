"""How a verifier is asked: its labels, its template (format custom), its prompt (prompted)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from tts.compat import Self

from .section import Section

VerifierDialogue = Literal[
    "rlhflow",
    "math-shepherd",
    "custom",
    "qwen2.5-math-prm",
    "skywork-o1-prm",
    "prompted",
    "likelihood",
]
"""The formats of docs/verifiers.md."""
PROMPT_PLACES = ("{question}", "{steps}", "{step}")
"""What a prompt holds, in this order: the KV cache then serves all but the end of it."""


class Labels(Section):
    """The two label strings of the verifier; each must be one token of its tokenizer."""

    positive: Annotated[str, Field(min_length=1)] = "+"
    negative: Annotated[str, Field(min_length=1)] = "-"

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.positive == self.negative:
            raise ValueError(f"positive and negative are both {self.positive!r}; they must differ")
        return self


ANSWERS = {"positive": "Yes", "negative": "No"}
"""The labels of format prompted unless the deployment names others."""


class Template(Section):
    """The dialogue of a verifier of format custom; the texts are sent verbatim.

    It reads: head, first step, answer, turn, second step, answer, ... ; a step's score is read
    right after its `answer`.
    """

    head: str
    """Everything before the first step; {question} stands for the question."""
    answer: str
    """What follows a step, up to where its score is read."""
    turn: str
    """What follows up to the next step; {label} in front stands for the positive label."""

    @field_validator("head")
    @classmethod
    def _asks(cls, head: str) -> str:
        if head.count("{question}") != 1:
            raise ValueError("must hold {question} exactly once")
        return head

    @field_validator("head", "answer", "turn")
    @classmethod
    def _places(cls, text: str, info: ValidationInfo) -> str:
        allowed = {"head": "{question}", "turn": "{label}"}.get(info.field_name or "")
        for place in {"{question}", "{label}", "{step}"} - {allowed}:
            if place in text:
                raise ValueError(f"must not hold {place}")
        if "{label}" in text.removeprefix("{label}"):
            raise ValueError("may hold {label} once, at its very beginning")
        return text


def checked_prompt(prompt: str) -> str:
    """A prompt without white space around it, which chat templates strip; raises ValueError."""
    rest = prompt
    for place in PROMPT_PLACES:
        _, found, rest = rest.partition(place)
        if not found or prompt.count(place) > 1:
            raise ValueError(
                f"must hold {', '.join(PROMPT_PLACES)} once each, in this order; {place} "
                + ("comes twice" if prompt.count(place) > 1 else "is not where it should be")
            )
    return prompt.strip()
