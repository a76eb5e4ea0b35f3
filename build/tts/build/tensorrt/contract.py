"""Facts on TensorRT-LLM 1.2.1 and its container, read from contract/*.json, which names sources.

Without a GPU none of it can be executed, so every command, call and engine is checked against these
files instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

TENSORRT_LLM = "1.2.1"
"""The only version that engines are built with and served by."""


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Flag(_Facts):
    """One flag of trtllm-build."""

    type: Literal["text", "texts", "int", "switch"]
    default: str | int | bool | None = None
    choices: tuple[str, ...] | None = None
    aliases: tuple[str, ...] = ()
    deprecated: bool = False
    still_needed: str = ""
    """Why it is used although it is deprecated."""
    explicit: bool = False
    """It must be passed: its default is wrong for us, or may change."""
    least: int | None = None
    power_of_two: bool = False


class EngineField(_Facts):
    """A field of an engine's config.json that records what it was built with."""

    path: str
    overridden: str = ""
    """The case in which the builder changes it with a warning only."""
    matters: str = ""


class Call(_Facts):
    """The arguments of one function of TensorRT-LLM's Python API."""

    positional: tuple[str, ...]
    keywords: tuple[str, ...]
    required: tuple[str, ...]


class CallMade(_Facts):
    """The arguments that a conversion gives one function of TensorRT-LLM's Python API."""

    positional: int
    """How many are given by position."""
    keywords: tuple[str, ...]
    with_experts: tuple[str, ...] = ()
    """Further keywords, given when experts are divided over ranks."""


class Container(_Facts):
    """The contents of one tag of the container."""

    tensorrt_llm: str
    tensorrt: str
    cuda: str
    driver: str


@cache
def build_flags() -> Mapping[str, Flag]:
    """The flags of trtllm-build by name."""
    flags = _read("trtllm_build")["flags"]
    return {name: Flag.model_validate(flag) for name, flag in flags.items()}


@cache
def engine_fields() -> Mapping[str, EngineField]:
    """The fields that can be read back from an engine, by the name of the flag or setting."""
    fields = _read("engine_config")["fields"]
    return {name: EngineField.model_validate(field) for name, field in fields.items()}


@cache
def python_calls() -> Mapping[str, Call]:
    """The calls of the Python API that a conversion makes."""
    return {n: Call.model_validate(call) for n, call in _read("python_api")["calls"].items()}


@cache
def calls_made(step: Literal["convert", "quantise"]) -> Mapping[str, CallMade]:
    """What a step calls and how; {model_class} in a name stands for the model's class."""
    made = _read("python_api")["made"][step]
    return {name: CallMade.model_validate(call) for name, call in made.items()}


def quant_algos() -> Sequence[str]:
    """The members of TensorRT-LLM's QuantAlgo."""
    names: list[str] = _read("python_api")["quant_algos"]
    return names


@cache
def containers() -> Mapping[str, Container]:
    """The container tags that hold TensorRT-LLM 1.2.1."""
    tags = _read("containers")["containers"]
    return {tag: Container.model_validate(container) for tag, container in tags.items()}


def model_classes() -> Mapping[str, str]:
    """The class of tensorrt_llm.models by the architecture that a checkpoint names."""
    classes: dict[str, str] = _read("python_api")["model_classes"]
    return classes


def calibration_sets() -> Sequence[str]:
    """Calibration sets that the quantiser downloads by name."""
    names: list[str] = _read("python_api")["calibration_sets"]
    return names


def container_image(tag: str) -> str:
    """The full name of a container."""
    image: str = _read("containers")["image"]
    return image.format(tag=tag)


def version_variable() -> str:
    """The environment variable in which the container states its tag."""
    name: str = _read("containers")["version_variable"]
    return name


def compute_capability(gpu: str) -> str:
    """Compute capability of a kind of GPU, such as "9.0"; engines run on that one only."""
    capability: str = _read("compute_capability")["gpus"][gpu]
    return capability


def precision_problem(gpu: str, precision: str) -> str | None:
    """Why a kind of GPU cannot run a precision, or None."""
    facts = _read("compute_capability")
    has = _number(compute_capability(gpu))
    if precision == "fp8" and has < _number(facts["fp8_from"]):
        return f"fp8 needs compute capability {facts['fp8_from']} or later"
    if precision in ("int8", "int4_awq") and has >= _number(facts["no_weight_only_from"]):
        return (
            f"TensorRT-LLM {TENSORRT_LLM} refuses weight-only int8 and int4 from compute "
            f"capability {facts['no_weight_only_from']} on"
        )
    return None


def _number(capability: str) -> tuple[int, int]:
    major, minor = capability.split(".")
    return int(major), int(minor)


@cache
def _read(name: str) -> dict[str, Any]:
    text = (files(__package__) / "contract" / f"{name}.json").read_text(encoding="utf-8")
    facts: dict[str, Any] = json.loads(text)
    return facts
