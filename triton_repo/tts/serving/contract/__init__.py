"""The contract's data (*.json): tensors and parameters of TensorRT-LLM's Triton backend, what the
log of a start says, and which failures pass.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Tensor(_Fact):
    """One input or output of an engine model."""

    name: str
    data_type: str
    """Name of Triton's data type, or `logits` for the engine's logits type."""
    dims: list[int]
    optional: bool = False
    ragged: bool = False
    scalar: bool = False
    """Reshaped to a tensor without dimensions."""


class Parameter(_Fact):
    """One key that the backend reads."""

    key: str
    type: Literal["string", "int", "float", "bool"] = "string"
    required: bool = False
    """A model without the key does not load."""
    forbidden: bool = False
    allowed: list[str] | None = None
    minimum: int | None = None
    above: float | None = None
    below: float | None = None
    why: str


class LineForm(_Fact):
    """One kind of line in the log of a start."""

    form: str
    """The line as the source prints it, with C's conversions."""
    pattern: str
    """The regular expression that recognises it."""
    example: str
    source: str


class PassingFailure(_Fact):
    """Words of an error that says nothing against its request, which may be sent again."""

    text: str
    """The text by which it is recognised."""
    example: str
    source: str


class Contract(_Fact):
    """Everything that contract/tensorrt_llm.json holds."""

    meta: dict[str, Any] = Field(alias="_meta")
    booleans: dict[str, list[str]]
    inputs: list[Tensor]
    outputs: list[Tensor]
    parameters: list[Parameter]
    other_parameters: list[str]
    """Keys that the backend knows and this toolkit leaves at their defaults."""

    def parameter(self, key: str) -> Parameter | None:
        """The facts on a key that the toolkit sets, or must not set; None for another key."""
        return next((item for item in self.parameters if item.key == key), None)

    def canonical(self, parameter: Parameter, text: str) -> str:
        """The normal form of a value; raises ValueError saying what is allowed."""
        if parameter.allowed is not None and text not in parameter.allowed:
            raise ValueError(f"must be one of: {', '.join(map(repr, parameter.allowed))}")
        if parameter.type == "string":
            return text
        if parameter.type == "bool":
            names = [name for name, texts in self.booleans.items() if text in texts]
            if not names:
                raise ValueError("must be true or false")
            return names[0]
        try:
            value = int(text) if parameter.type == "int" else float(text)
        except ValueError:
            raise ValueError(f"must be a number ({parameter.type})") from None
        if parameter.minimum is not None and value < parameter.minimum:
            raise ValueError(f"must be at least {parameter.minimum}")
        if parameter.above is not None and value <= parameter.above:
            raise ValueError(f"must be above {parameter.above:g}")
        if parameter.below is not None and value >= parameter.below:
            raise ValueError(f"must be below {parameter.below:g}")
        return str(value)


@cache
def contract() -> Contract:
    """The contract, read once."""
    return Contract.model_validate_json(_read("tensorrt_llm.json"))


@cache
def start_log_forms() -> dict[str, LineForm]:
    """The lines about memory in the log of a start, by subject."""
    forms: dict[str, Any] = json.loads(_read("start_log.json"))["forms"]
    return {name: LineForm.model_validate(form) for name, form in forms.items()}


@cache
def passing_failures() -> tuple[PassingFailure, ...]:
    """The errors of Triton, gRPC and TensorRT-LLM that pass, known by their words alone."""
    failures: list[Any] = json.loads(_read("passing_failures.json"))["failures"]
    return tuple(map(PassingFailure.model_validate, failures))


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
