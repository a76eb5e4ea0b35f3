"""What a request says of the form of its answer. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct


class JsonSchema(Struct):
    """A schema by OpenAI's name for it."""

    schema: dict[str, Any] | bool | None = None
    name: str = ""
    strict: bool | None = None
    """Whether the answer must obey all of it, or what of it can be held to."""


class ResponseFormat(Struct):
    """OpenAI's `response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Struct, forbid_unknown_fields=True):
    """vLLM's `structured_outputs`: one of three."""

    json: dict[str, Any] | bool | str | None = None
    regex: str | None = None
    choice: Annotated[list[str], Meta(min_length=1)] | None = None
