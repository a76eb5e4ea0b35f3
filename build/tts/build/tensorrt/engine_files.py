"""Reading a built TensorRT-LLM engine back: is it complete, and is it what was asked for?

The builder changes settings that it does not support with a warning only; config.json tells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tts.base.errors import BuildError
from tts.base.input_files import parse_json, read_text

from . import contract

CONFIG_FILE = "config.json"
_ABSENT = object()


def require_as_asked(folder: Path, expected: Mapping[str, object]) -> None:
    """Raise BuildError for an engine that differs from `expected`, with each difference's cost."""
    if problems := engine_problems(folder, expected):
        raise BuildError(
            "The engine that trtllm-build made is not what was asked for:\n"
            + "\n".join(f"  {problem}" for problem in problems),
            hint="Its warnings in the build log say why; change the deployment accordingly.",
        )


def engine_problems(folder: Path, expected: Mapping[str, object]) -> list[str]:
    """Every way in which an engine is incomplete or differs; raises BuildError without config."""
    config = _read(folder / CONFIG_FILE)
    return [
        *_version_problems(config),
        *_rank_problems(folder, expected),
        *(p for name, value in expected.items() if (p := _difference(config, name, value))),
    ]


def _read(file: Path) -> Mapping[str, Any]:
    try:
        config = parse_json(read_text(file))
    except FileNotFoundError as error:
        raise BuildError(
            "trtllm-build ended well, but wrote no config.json.",
            hint="Build again; if it happens twice, the build log may say why.",
        ) from error
    except ValueError as error:
        raise BuildError(f"trtllm-build wrote a config.json that is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise BuildError("trtllm-build wrote a config.json that is not an object.")
    return config


def _version_problems(config: Mapping[str, Any]) -> list[str]:
    version = str(config.get("version"))
    if version.partition("+")[0] == contract.TENSORRT_LLM:
        return []
    return [
        f"it is of TensorRT-LLM {version}, not {contract.TENSORRT_LLM}: the container would fail "
        "to load it"
    ]


def _rank_problems(folder: Path, expected: Mapping[str, object]) -> list[str]:
    ranks = expected["world_size"]
    assert isinstance(ranks, int)
    names = [f"rank{rank}.engine" for rank in range(ranks)]
    missing = [n for n in names if not (folder / n).is_file() or not (folder / n).stat().st_size]
    extra = sorted(file.name for file in folder.glob("rank*.engine") if file.name not in names)
    return [
        *(f"{name} is missing or empty" for name in missing),
        *(f"{name} is of a rank that there is not: there are {ranks}" for name in extra),
    ]


def _difference(config: Mapping[str, Any], name: str, expected: object) -> str | None:
    field = contract.engine_fields()[name]
    value: Any = config
    for part in field.path.split("."):
        value = value.get(part, _ABSENT) if isinstance(value, dict) else _ABSENT
    if _same(name, value, expected):
        return None
    value_text = "missing" if value is _ABSENT else json.dumps(value)
    text = f"{field.path} is {value_text}, not {json.dumps(expected)}"
    if field.matters:
        text += f"; {field.matters}"
    if field.overridden:
        text += f" (the builder changes it when: {field.overridden})"
    return text


def _same(name: str, value: Any, expected: object) -> bool:
    if name == "gpt_attention_plugin":  # recorded as auto, or as the type that auto stood for
        return isinstance(value, str) and value != "disable"
    if name == "kv_cache_type":
        return str(value).lower() == expected
    return type(value) is type(expected) and bool(value == expected)
