"""Single corruptions of a model repository: each changes what is served, so each must be found."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tests.amounts import amount
from tritonclient.grpc import model_config_pb2 as triton

from tts.serving.contract.facts import contract
from tts.serving.repository.render import parse_config

MUTATIONS = amount(45, 210)


def mutate(folder: Path, rng: random.Random) -> str:
    """Corrupt a repository in one place and say how; the kinds are equally likely."""
    return rng.choice(KINDS)(folder, rng)


def mutants(folder: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Copies of a repository with one corruption each, and what it is: every kind as often."""
    for seed in range(MUTATIONS):
        copy = scratch / str(seed)
        shutil.copytree(folder, copy)
        what = KINDS[seed % len(KINDS)](copy, random.Random(seed))
        yield f"{seed}, {what}", copy


def edit(folder: Path, model: str, change: Callable[[Any], str]) -> str:
    file = folder / model / "config.pbtxt"
    config = parse_config(file)
    what = change(config)
    file.write_text(text_format.MessageToString(config))
    return f"{model}: {what}"


ENGINES = ["generator", "prm_engine"]
MODELS = [*ENGINES, "prm_score", "prm"]


def tensor(
    folder: Path, rng: random.Random, change: Callable[[Any, Any, random.Random], str]
) -> str:
    model, side = rng.choice(MODELS), rng.choice(["input", "output"])

    def apply(config: Any) -> str:
        tensors = getattr(config, side)
        return f"{side} {change(tensors, rng.choice(list(tensors)), rng)}"

    return edit(folder, model, apply)


def drop_tensor(tensors: Any, one: Any, rng: random.Random) -> str:
    name = one.name
    tensors.remove(one)
    return f"{name} dropped"


def rename_tensor(tensors: Any, one: Any, rng: random.Random) -> str:
    one.name += "_"
    return f"{one.name} renamed"


def retype_tensor(tensors: Any, one: Any, rng: random.Random) -> str:
    one.data_type = rng.choice([kind for kind in range(1, 15) if kind != one.data_type])
    return f"{one.name} retyped"


def reshape_tensor(tensors: Any, one: Any, rng: random.Random) -> str:
    dims = list(one.dims)
    other = rng.choice([[*dims, 1], [*dims[:-1], 7], [-1] * (len(dims) + 1)])
    del one.dims[:]
    one.dims.extend(other)
    return f"{one.name} dims {dims} -> {other}"


def flag_tensor(tensors: Any, one: Any, rng: random.Random) -> str:
    flag = rng.choice(["reshape", "twice", "is_shape_tensor"])
    if flag == "twice":
        tensors.append(one)
    elif flag == "is_shape_tensor":
        one.is_shape_tensor = True
    elif one.HasField("reshape"):
        one.ClearField("reshape")
    else:
        one.reshape.SetInParent()
    return f"{one.name} {flag}"


def optional_tensor(folder: Path, rng: random.Random) -> str:
    def apply(config: Any) -> str:
        one = rng.choice(list(config.input))
        field = rng.choice(["optional", "allow_ragged_batch"])
        setattr(one, field, not getattr(one, field))
        return f"{one.name} {field}"

    return edit(folder, rng.choice(MODELS), apply)


def drop_parameter(folder: Path, rng: random.Random) -> str:
    def apply(config: Any) -> str:
        key = rng.choice(sorted(config.parameters))
        del config.parameters[key]
        return f"parameter {key} dropped"

    return edit(folder, rng.choice(MODELS), apply)


def alter_parameter(folder: Path, rng: random.Random) -> str:
    def apply(config: Any) -> str:
        key = rng.choice(sorted(config.parameters))
        old = config.parameters[key].string_value
        others = {"true": "false", "false": "true", "0": "7"}
        new = rng.choice([others.get(old, "1"), old + "1", f"${{{key}}}", "max_utilisation"])
        config.parameters[key].string_value = new if new != old else "x"
        return f"parameter {key} {old!r} -> {new!r}"

    return edit(folder, rng.choice(MODELS), apply)


def rename_parameter(folder: Path, rng: random.Random) -> str:
    def apply(config: Any) -> str:
        key = rng.choice(sorted(config.parameters))
        value = config.parameters[key].string_value
        del config.parameters[key]
        config.parameters[key.upper() if key.upper() != key else "x"].string_value = value
        return f"parameter {key} renamed"

    return edit(folder, rng.choice(MODELS), apply)


def add_parameter(folder: Path, rng: random.Random) -> str:
    def apply(config: Any) -> str:
        known = [*contract().other_parameters, "worker_path", "anything"]
        key = rng.choice(known)
        config.parameters[key].string_value = "1"
        return f"parameter {key} added"

    return edit(folder, rng.choice(MODELS), apply)


def policy(folder: Path, rng: random.Random) -> str:
    def apply(config: Any) -> str:
        field = rng.choice(["decoupled", "count", "kind", "gpus", "batch", "delay", "queue"])
        if field == "decoupled":
            before = config.model_transaction_policy.decoupled
            config.model_transaction_policy.decoupled = not before
        elif field == "count":
            config.instance_group[0].count += 1
        elif field == "kind":
            config.instance_group[0].kind = triton.ModelInstanceGroup.KIND_GPU
        elif field == "gpus":
            config.instance_group[0].gpus.append(0)
        elif field == "batch":
            config.max_batch_size = rng.choice([0, 1, config.max_batch_size + 1])
        elif field == "delay":
            config.dynamic_batching.max_queue_delay_microseconds = 500
        else:
            config.dynamic_batching.default_queue_policy.max_queue_size = 3
        return field

    return edit(folder, rng.choice(ENGINES), apply)


def header(folder: Path, rng: random.Random) -> str:
    def apply(config: Any) -> str:
        field = rng.choice(["name", "backend", "platform", "version", "extra"])
        if field == "version":
            config.version_policy.latest.num_versions = 2
        elif field == "extra":
            config.response_cache.enable = True
        else:
            setattr(config, field, getattr(config, field) + "x")
        return field

    return edit(folder, rng.choice(MODELS), apply)


def ensemble(folder: Path, rng: random.Random) -> str:
    def apply(config: Any) -> str:
        step = rng.choice(list(config.ensemble_scheduling.step))
        kind = rng.choice(["model", "version", "drop", "key", "value", "step"])
        side = rng.choice([step.input_map, step.output_map])
        key = rng.choice(sorted(side))
        if kind == "model":
            step.model_name = rng.choice(["generator", "prm", step.model_name + "2"])
        elif kind == "version":
            step.model_version = 1
        elif kind == "drop":
            del side[key]
        elif kind == "key":
            side[key + "_"] = side[key]
            del side[key]
        elif kind == "value":
            side[key] = rng.choice(["x", *(name for name in sorted(side) if name != key)])
        else:
            config.ensemble_scheduling.step.remove(step)
        return f"ensemble {kind}"

    return edit(folder, "prm", apply)


def labels(folder: Path, rng: random.Random) -> str:
    def apply(config: Any) -> str:
        ids = config.parameters["label_ids"]
        others = ["12,10", "10", "10,13", "0,1", "10,12,14", ""]
        ids.string_value = rng.choice([text for text in others if text != ids.string_value])
        return f"label ids {ids.string_value!r}"

    return edit(folder, "prm_score", apply)


def files(folder: Path, rng: random.Random) -> str:
    model = rng.choice(MODELS)
    kind = rng.choice(["config", "version", "another version", "model", "code", "text", "garbage"])
    config = folder / model / "config.pbtxt"
    if kind == "config":
        config.unlink()
    elif kind == "version":
        shutil.rmtree(folder / model / "1")
    elif kind == "another version":
        (folder / model / "2").mkdir()
    elif kind == "model":
        shutil.copytree(folder / model, folder / f"{model}_2")
    elif kind == "code":
        with (folder / "prm_score" / "1" / "model.py").open("a") as file:
            file.write("# changed\n")
    elif kind == "text":
        config.write_text(config.read_text() + "\n# ${left_over}\n")
    else:
        config.write_text(config.read_text() + "\nmax_batch_size: ${triton_max_batch_size}\n")
    return f"{model}: {kind}"


def _tensor_kind(change: Callable[[Any, Any, random.Random], str]) -> Callable[..., str]:
    return lambda folder, rng: tensor(folder, rng, change)


KINDS: list[Callable[[Path, random.Random], str]] = [
    *map(_tensor_kind, (drop_tensor, rename_tensor, retype_tensor, reshape_tensor, flag_tensor)),
    optional_tensor,
    drop_parameter,
    alter_parameter,
    rename_parameter,
    add_parameter,
    policy,
    header,
    ensemble,
    labels,
    files,
]
