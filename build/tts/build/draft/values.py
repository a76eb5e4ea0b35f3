"""The fields of a new deployment file that are worth setting, and why each has its value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..spec import (
    FORMATS,
    Deployment,
    GeneratorSpec,
    Precision,
    Role,
    Target,
    VerifierSpec,
)
from ..tensorrt.gpus import gpus_of
from .facts import Answers, CompiledModel, FunctionModel, Machine, Model, ServedModel
from .fit import fitted, pool

Place = tuple[str, ...]
"""Where a field is: its name below those of its sections."""

CONTEXT = 4096
"""Tokens of a sequence where the models have as many: enough for a solution in steps."""
_UNKNOWN_CONTEXT = 2048
_PROMPT = 2048
"""Tokens that the prompt of format prompted may add to the text that it judges."""
SYSTEM_PROMPT = (
    "Please reason step by step, and put your final answer within \\boxed{}."  # of Qwen2.5-Math
)
_TEMPLATE = {"head": "{question}\n\n", "answer": "\n\n", "turn": "{label}\n\n"}
_GUESS = "A guess, as no checkpoint is here yet: once it is, `tts init --force` sizes it."


@dataclass(frozen=True)
class Draft:
    """The content of a new file, in order."""

    values: Mapping[str, Any]
    notes: Mapping[Place, str] = field(default_factory=dict)
    """Comments on fields' values, beside the descriptions of the fields."""
    suggested: Mapping[Place, Any] = field(default_factory=dict)
    """Fields that are left out, with values to begin with: they go at the end of their section."""
    title: str = ""
    """The comment on top."""


def draft(answers: Answers, machine: Machine) -> Draft:
    """The file for these models on this machine.

    Raises ConfigError if they do not fit it, CheckpointError for a checkpoint that cannot be used.
    """
    notes: dict[Place, str] = {}
    suggested: dict[Place, Any] = {}
    values: dict[str, Any] = {"name": answers.name, "target": answers.target}
    if answers.target in ("tensorrt", "llmapi"):
        values["tensorrt"] = {"gpu": machine.gpu}
        notes["tensorrt", "gpu"] = (
            f"Found here: {machine.gpus}." if machine.gpus else "Not found on this machine."
        )
    values["generator"] = _generator(answers, machine, notes, suggested)
    values["verifier"] = _verifier(answers, machine, notes, suggested)
    if answers.target == "llmapi":
        values["server"] = {"kind": "embedded"}
        notes["server", "kind"] = "Run it inside NVIDIA's TensorRT-LLM image."
    elif answers.target == "openvino" and not machine.triton:
        values["server"] = {"kind": "embedded"}
        notes["server", "kind"] = "No Triton server is installed here."
    new = Draft(values, notes, suggested, _title(answers))
    if not (sized := _compiled(answers)):
        return new
    if any(model.positions is None for model in sized.values()):
        guesses = {(role, *place): _GUESS for role in sized for place in _SIZED}
        return replace(new, notes={**notes, **guesses})
    return _sized(new, fitted(deployment_of(new, answers), machine), machine)


_SIZED: tuple[Place, ...] = (("precision",), ("kv_cache", "tokens"))


def deployment_of(new: Draft, answers: Answers) -> Deployment:
    """The deployment that a draft describes, with absolute paths of checkpoints."""
    values = dict(new.values)
    for role, model in _compiled(answers).items():
        values[role] = {**values[role], "checkpoint": model.folder}
    return Deployment.model_validate(values)


def _compiled(answers: Answers) -> dict[Role, CompiledModel]:
    """The models that are compiled, generator first."""
    both: dict[Role, Model | FunctionModel] = {
        "generator": answers.generator,
        "verifier": answers.verifier,
    }
    return {role: model for role, model in both.items() if isinstance(model, CompiledModel)}


def _sized(new: Draft, deployment: Deployment, machine: Machine) -> Draft:
    """The draft with the sizes of a deployment that fits, and why they are what they are."""
    values, notes = dict(new.values), dict(new.notes)
    for role, spec in deployment.engines().items():
        values[role] = {
            **values[role],
            "precision": spec.precision,
            "max_batch_size": spec.max_batch_size,
            "kv_cache": {"tokens": spec.kv_cache.tokens},
        }
        notes[role, "precision"] = _WHY_PRECISION[deployment.target, spec.precision]
        if isinstance(spec, GeneratorSpec):
            values[role]["in_flight_requests"] = spec.in_flight_requests
        if isinstance(spec, VerifierSpec):
            most = spec.max_batch_size * spec.max_seq_len
            values[role]["in_flight_tokens"] = min(spec.in_flight_tokens, most)
        if deployment.tensorrt is None:
            continue
        notes[role, "kv_cache", "tokens"] = "By the memory plan: `tts plan --write` sets it anew."
        if spec.placement.replicas != ((0,),):
            gpus = [list(spec.placement.replicas[0])]
            ranks = spec.placement.tensor_parallel
            values[role]["tensorrt"] = {"tensor_parallel": ranks, "gpus": gpus}
            notes[role, "tensorrt", "gpus"] = "As few as the memory plan can do with."
    if deployment.tensorrt and machine.gpus > len(gpus_of(deployment)):
        notes["tensorrt", "gpu"] += (
            f" `tts simulate --placements --gpus {machine.gpus}` compares ways to use them all."
        )
    return replace(new, values=values, notes=notes)


_SMALLER = "In bf16 the pair would not fit, or have few KV blocks."
_WHY_PRECISION: Mapping[tuple[Target, Precision], str] = {
    ("openvino", "fp32"): "Trees are reproducible, and the memory suffices.",
    ("openvino", "bf16"): "Half of fp32's memory.",
    ("openvino", "int8"): "A quarter of fp32's memory.",
    ("tensorrt", "bf16"): "The memory suffices for it.",
    ("tensorrt", "fp8"): f"{_SMALLER} Compare its scores before you trust them.",
    ("tensorrt", "int8"): f"{_SMALLER} Weights only.",
    ("tensorrt", "int4_awq"): f"{_SMALLER} Weights only.",
    ("llmapi", "bf16"): "As the checkpoint is loaded.",
}


def _title(answers: Answers) -> str:
    how = {
        "openvino": "on this machine's CPU",
        "tensorrt": "compiled by TensorRT-LLM for NVIDIA GPUs",
        "llmapi": "on TensorRT-LLM's PyTorch backend",
        "openai": "on servers that run already",
    }[answers.target]
    judge = answers.verifier.name
    judge = "itself" if judge == answers.generator.name else judge
    return (
        f"{answers.generator.name} guided by {judge}, {how}. Written by `tts init`; the fields "
        "left out have defaults (docs/reference/deployment.md). Relative paths start at this file."
    )


def _positions(model: Model) -> int | None:
    return model.positions if isinstance(model, CompiledModel) else model.context


def _length(model: Model, most: int) -> int:
    return min(_positions(model) or _UNKNOWN_CONTEXT, most)


def _generator(
    answers: Answers, machine: Machine, notes: dict[Place, str], suggested: dict[Place, Any]
) -> dict[str, Any]:
    model = answers.generator
    length = _length(model, CONTEXT)
    if not isinstance(answers.verifier, FunctionModel):  # it has to read all that is written
        length = min(length, _length(answers.verifier, CONTEXT))
    values = _model("generator", model, length, machine, answers, notes, suggested)
    values["in_flight_requests"] = values.get("max_batch_size", 64)
    if answers.system_prompt:
        values["system_prompt"] = answers.system_prompt
        notes["generator", "system_prompt"] = "Answers are read from the last box."
    else:
        suggested["generator", "system_prompt"] = SYSTEM_PROMPT
    return values


def _verifier(
    answers: Answers, machine: Machine, notes: dict[Place, str], suggested: dict[Place, Any]
) -> dict[str, Any]:
    model, form = answers.verifier, answers.format
    if isinstance(model, FunctionModel):
        return {"function": model.name}
    length = _length(model, CONTEXT + (_PROMPT if form == "prompted" else 0))
    values = _model("verifier", model, length, machine, answers, notes, suggested)
    on_gpu = answers.target != "openvino" or "url" in values
    budget = 65536 if on_gpu else 8192
    if "checkpoint" in values:
        budget = min(budget, values["max_batch_size"] * length)
    values["in_flight_tokens"] = max(budget, length)
    values["format"] = form
    notes["verifier", "format"] = answers.why_format
    if form == "prompted":
        values["prompt"] = answers.prompt
        notes["verifier", "prompt"] = "The bundled one: change it to fit your problems."
    labelled = isinstance(model, ServedModel) or model.head == "labels"
    if form == "custom":
        values["template"] = {**_TEMPLATE, **({} if labelled else {"turn": ""})}
        notes["verifier", "template"] = (
            "Nothing tells what this verifier was trained on: write its dialogue here."
        )
    labels = FORMATS[form].labels
    if labels and labelled and form in _LABELLED:
        values["labels"] = dict(zip(("positive", "negative"), labels, strict=True))
    return values


# whose labels are worth seeing
_LABELLED = ("rlhflow", "math-shepherd", "custom", "prompted")


def _model(
    role: Role,
    model: Model,
    length: int,
    machine: Machine,
    answers: Answers,
    notes: dict[Place, str],
    suggested: dict[Place, Any],
) -> dict[str, Any]:
    """What both sections begin with."""
    if isinstance(model, ServedModel):
        suggested[role, "model"] = "NAME"
        suggested[role, "api_key_env"] = "MY_KEY"
        notes[role, "max_seq_len"] = (
            "" if model.context else "The server's context is not known: raise this up to it."
        )
        return {"url": model.url, "tokenizer": model.tokenizer, "max_seq_len": length}
    if model.repository:
        notes[role, "checkpoint"] = (
            f"Download it: hf download {model.repository} --local-dir {model.checkpoint}"
        )
    generates = role == "generator"
    if answers.target == "openvino":
        batch, step = max(16, min(64, 2 * machine.cores)), 256 if generates else 512
        precision = "int8"
    else:
        batch, step = (512, 4096) if generates else (64, 8192)
        precision = "bf16"
    notes[role, "max_num_tokens"] = (
        "Short steps let new requests in soon."
        if generates
        else "Its work is reading prompts, so steps are long."
    )
    notes[role, "max_seq_len"] = (
        "" if model.positions else "The checkpoint is not here: raise this up to its positions."
    )
    values = {
        "checkpoint": model.checkpoint,
        "precision": precision,
        "max_batch_size": batch,
        "max_num_tokens": step,
        "max_seq_len": length,
        "kv_cache": {"tokens": pool(batch, length)},
    }
    if generates and answers.target in ("tensorrt", "llmapi"):
        values["scheduling_policy"] = "max_utilization"
        notes[role, "scheduling_policy"] = "A paused request finds its prefix again."
    return values
