"""TensorRT-LLM's Python API as data, and the check of arguments against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Argument(_Fact):
    """One argument of `LLM(...)`, or one field of an argument that is an object."""

    type: str
    """int, float, bool, str or object."""
    optional: bool = False
    """Whether None is a value."""
    allowed: tuple[str, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    fields: dict[str, Argument] | None = None
    why: str


class Contract(_Fact):
    """Everything that contract.json holds."""

    meta: dict[str, Any] = Field(alias="_meta")
    minimum: str
    """The oldest version."""
    sampler_removed: str
    containers: dict[str, str]
    """Tag of a container -> the version of TensorRT-LLM in it."""
    arguments: dict[str, Argument]
    """Arguments of `LLM(...)` that the toolkit passes."""
    llm: dict[str, list[str]]
    """Methods of `LLM` that the toolkit calls, and their parameters."""
    sampling_params: dict[str, JsonValue]
    """Fields of SamplingParams, and their defaults."""
    request_output: list[str]
    """Members of what `generate_async` returns."""
    completion_output: list[str]
    """Fields of CompletionOutput."""
    finish_reasons: list[str]
    behaviour: dict[str, str]


@cache
def contract() -> Contract:
    """The contract, read once."""
    text = (files(__package__) / "contract.json").read_text(encoding="utf-8")
    return Contract.model_validate_json(text)


def argument_problems(arguments: Mapping[str, JsonValue]) -> list[str]:
    """Mistakes in the arguments of `LLM(...)`, a sentence each."""
    return list(_problems(arguments, contract().arguments, ""))


def argument_reason(path: str) -> str:
    """Why an argument matters; its path has dots."""
    facts, fact = contract().arguments, None
    for name in path.split("."):
        fact = facts.get(name)
        if fact is None:
            break
        facts = fact.fields or {}
    return fact.why if fact else "LLM refuses an argument that it does not know"


def _problems(
    given: Mapping[str, JsonValue], facts: Mapping[str, Argument], within: str
) -> Iterator[str]:
    for name in facts.keys() - given.keys():
        if not facts[name].optional:
            yield f"{within}{name} is missing"
    for name, value in given.items():
        if name not in facts:
            yield f"{within}{name} is no argument that TensorRT-LLM is known to have"
        elif problem := _problem(value, facts[name]):
            yield f"{within}{name} is {value!r}; it must be {problem}"
        elif isinstance(value, dict):
            yield from _problems(value, facts[name].fields or {}, f"{within}{name}.")


_TYPES: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
    "object": dict,
}


def _problem(value: JsonValue, fact: Argument) -> str | None:
    """The value that is needed instead; None if it is right."""
    if value is None:
        return None if fact.optional else f"of type {fact.type}"
    right = isinstance(value, _TYPES[fact.type])
    if not right or (isinstance(value, bool) and fact.type != "bool"):
        return f"of type {fact.type}"
    if fact.allowed is not None and value not in fact.allowed:
        return f"one of {', '.join(fact.allowed)}"
    if isinstance(value, (int, float)):
        if fact.minimum is not None and value < fact.minimum:
            return f"at least {fact.minimum:g}"
        if fact.maximum is not None and value > fact.maximum:
            return f"at most {fact.maximum:g}"
    return None
