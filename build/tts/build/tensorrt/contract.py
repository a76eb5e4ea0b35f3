"""Facts on TensorRT-LLM 1.2.1 and its container, read from contract/*.json, which names sources.

Without a GPU none of it can be executed, so every command, call and engine is checked against these
files instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, cast

from pydantic import BaseModel, ConfigDict

TENSORRT_LLM = "1.2.1"
"""The only version that engines are built with and served by."""


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EngineField(_Facts):
    """A field of an engine's config.json that records what it was built with."""

    path: str
    overridden: str = ""
    """The case in which the builder changes it with a warning only."""
    matters: str = ""


class Container(_Facts):
    """The contents of one tag of the container."""

    tensorrt_llm: str
    tensorrt: str
    cuda: str
    driver: str


@cache
def engine_fields() -> Mapping[str, EngineField]:
    """The fields that can be read back from an engine, by the name of the flag or setting."""
    fields = _read("engine_config")["fields"]
    return {name: EngineField.model_validate(field) for name, field in fields.items()}


@cache
def containers() -> Mapping[str, Container]:
    """The container tags that hold TensorRT-LLM 1.2.1."""
    tags = _read("containers")["containers"]
    return {tag: Container.model_validate(container) for tag, container in tags.items()}


def model_classes() -> Mapping[str, str]:
    """The class of tensorrt_llm.models by the architecture that a checkpoint names."""
    return cast(Mapping[str, str], _read("python_api")["model_classes"])


def calibration_sets() -> Sequence[str]:
    """Calibration sets that the quantiser downloads by name."""
    return cast(Sequence[str], _read("python_api")["calibration_sets"])


def container_image(tag: str) -> str:
    """The full name of a container."""
    return str(_read("containers")["image"].format(tag=tag))


def version_variable() -> str:
    """The environment variable in which the container states its tag."""
    return str(_read("containers")["version_variable"])


def compute_capability(gpu: str) -> str:
    """Compute capability of a kind of GPU, such as "9.0"; engines run on that one only."""
    return str(_read("compute_capability")["gpus"][gpu])


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
    return cast(dict[str, Any], json.loads(text))
