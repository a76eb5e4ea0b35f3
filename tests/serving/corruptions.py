"""Corruptions of a model repository, each of which changes what is served; of any nested data."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from tests.amounts import amount
from tritonclient.grpc import model_config_pb2 as triton

from tts.serving.repository.render import parse_config

CORRUPTIONS = amount(45, 210)
MODELS = ("generator", "prm_engine", "prm_score", "prm")


def corrupted(folder: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Copies of a repository with one corruption each, and what it is: every kind as often."""
    for seed in range(CORRUPTIONS):
        copy = scratch / str(seed)
        shutil.copytree(folder, copy)
        what = KINDS[seed % len(KINDS)](copy, random.Random(seed))
        yield f"{seed}, {what}", copy


def altered(data: Any, rng: random.Random, kept: tuple[str, ...] = ()) -> str:
    """Change, remove or exchange any value of nested data, but for those below keys in `kept`."""
    places = [place for place in places_of(data, ()) if not set(kept) & set(place[2])]
    parent, key, path = rng.choice(places)
    old = parent[key]
    kind = rng.choice(["removed", "changed", "exchanged"])
    if kind == "exchanged" and key != "name":  # else it may be but another order
        others = [each for each in places if each[2][-1] == key and each[0][key] != old]
        if others and not isinstance(old, (dict, list)):
            other, _, _ = rng.choice(others)
            parent[key], other[key] = other[key], old
            return f"{path} exchanged"
    if kind == "removed" or isinstance(old, (dict, list)):
        del parent[key]
        return f"{path} removed"
    parent[key] = not old if isinstance(old, bool) else f"{old}1" if isinstance(old, str) else 12345
    return f"{path} changed"


def places_of(value: Any, path: tuple[Any, ...]) -> list[tuple[Any, Any, tuple[Any, ...]]]:
    """Each value in nested data: what holds it, its key there, and the keys that lead to it."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, Any, tuple[Any, ...]]] = []
    for key, item in items:
        found.append((value, key, (*path, key)))
        if isinstance(item, (dict, list)):
            found += places_of(item, (*path, key))
    return found


def any_value(folder: Path, rng: random.Random) -> str:
    """Another value of any field of a configuration, or none."""
    file = folder / rng.choice(MODELS) / "config.pbtxt"
    config = parse_config(file)
    while True:
        data = json_format.MessageToDict(config, preserving_proto_field_name=True)
        what = altered(data, rng)
        try:
            changed = json_format.ParseDict(data, triton.ModelConfig())
        except json_format.ParseError:  # of another type, or no value of its enumeration
            continue
        if changed != config:
            file.write_text(text_format.MessageToString(changed))
            return f"{file.parent.name}: {what}"


def added_field(folder: Path, rng: random.Random) -> str:
    """A field that nobody asked for."""
    file = folder / rng.choice(MODELS) / "config.pbtxt"
    field: Any = rng.choice(
        [
            {"parameters": {"worker_path": {"string_value": "1"}}},
            {"input": [{"name": "x", "data_type": "TYPE_INT32", "dims": [1]}]},
            {"output": [{"name": "output_ids", "data_type": "TYPE_INT32", "dims": [1]}]},
            {"instance_group": [{"gpus": [0]}]},
            {"dynamic_batching": {"max_queue_delay_microseconds": 500}},
            {"version_policy": {"latest": {"num_versions": 2}}},
            {"response_cache": {"enable": True}},
        ]
    )
    config = parse_config(file)
    config.MergeFrom(json_format.ParseDict(field, triton.ModelConfig()))
    file.write_text(text_format.MessageToString(config))
    return f"{file.parent.name}: {field} added"


def files(folder: Path, rng: random.Random) -> str:
    """A file or folder too few, too many, or of other content."""
    model = folder / rng.choice(MODELS)
    config, code = model / "config.pbtxt", folder / "prm_score" / "1" / "model.py"
    changes: dict[str, Callable[[], Any]] = {
        "without configuration": config.unlink,
        "without version": lambda: shutil.rmtree(model / "1"),
        "with another version": (model / "2").mkdir,
        "there twice": lambda: shutil.copytree(model, folder / f"{model.name}_2"),
        "with other code in prm_score": lambda: code.write_text(f"{code.read_text()}# changed\n"),
        "with a placeholder": lambda: config.write_text(f"{config.read_text()}\n# ${{left_over}}"),
    }
    what = rng.choice(list(changes))
    changes[what]()
    return f"{model.name}: {what}"


KINDS: list[Callable[[Path, random.Random], str]] = [any_value, any_value, added_field, files]
