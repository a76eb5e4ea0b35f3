"""The text of a new deployment file: deployment.yaml.j2, filled in."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from importlib.resources import files

import yaml

from ..spec import PRECISIONS, Deployment, Precision, Target
from ..started.engines import ENGINES
from ..tensorrt.gpus import gpus_of
from .facts import Choices, CompiledModel, Machine, ServedModel
from .values import SYSTEM_PROMPT

WIDTH = 98
"""Columns of a comment, with its indent."""
_PLAIN = re.compile(r"(\.{0,2}/|[a-z])[\w/.:@-]*(?<!:)", re.ASCII | re.IGNORECASE)
"""Texts that may do without quotation marks, if YAML reads them as texts."""
_HOW: Mapping[Target, str] = {
    "openvino": "on this machine's CPU",
    "tensorrt": "compiled by TensorRT-LLM for NVIDIA GPUs",
    "openai": "on servers that run already",
    "vllm": "by vLLM",
    "sglang": "by SGLang",
    "llama.cpp": "by llama.cpp's llama-server",
    "trtllm-serve": "by trtllm-serve",
}
_GUESS = "A guess, as no checkpoint is here yet: once it is, `tts init --force` sizes it."
_SMALLER = "In bf16 the pair would not fit, or have few KV blocks."
_WHY_PRECISION: Mapping[Target, Mapping[Precision, str]] = {
    "openvino": {
        "fp32": "Trees are reproducible, and the memory suffices.",
        "bf16": "Half of fp32's memory.",
        "int8": "A quarter of fp32's memory.",
    },
    "tensorrt": {
        "bf16": "The memory suffices for it.",
        "fp8": f"{_SMALLER} Compare its scores before you trust them.",
        "int8": f"{_SMALLER} Weights only.",
        "int4_awq": f"{_SMALLER} Weights only.",
    },
    "openai": {},
}


def as_text(choices: Choices, machine: Machine, deployment: Deployment) -> str:
    """The file of a deployment that was drafted from these choices for this machine."""
    import jinja2

    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"comment": _comment, "value": _value}
    environment.tests |= {
        "compiled": lambda model: isinstance(model, CompiledModel),
        "served": lambda model: isinstance(model, ServedModel),
    }
    template = files(__package__) / "deployment.yaml.j2"
    text = environment.from_string(template.read_text(encoding="utf-8")).render(
        how=_HOW,
        choices=choices,
        deployment=deployment,
        sections=[
            ("generator", choices.generator, deployment.generator),
            ("verifier", choices.verifier, deployment.verifier),
        ],
        gpu_note=_gpu_note(deployment, machine) if deployment.tensorrt else "",
        engine=next((each for each in ENGINES.values() if each.target == choices.target), None),
        precisions=", ".join(PRECISIONS[choices.target]),
        guess=_GUESS if choices.guessed else "",
        why_precision=_WHY_PRECISION.get(choices.target, {}),
        suggested_system_prompt=SYSTEM_PROMPT,
    )
    return text


def _comment(text: str, indent: int = 0) -> str:
    """Lines of a comment: whatever a name in it holds, nothing of it becomes a line of YAML."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    start = f"{' ' * indent}# "
    lines = textwrap.wrap(
        " ".join(printable.split()),
        WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def _value(text: str) -> str:
    if _PLAIN.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    quoted: str = yaml.safe_dump(text, default_style='"', width=10**6, allow_unicode=True)
    return quoted.removesuffix("\n")


def _gpu_note(deployment: Deployment, machine: Machine) -> str:
    if not machine.gpus:
        return "Not found on this machine."
    note = f"Found here: {machine.gpus}."
    if machine.gpus > len(gpus_of(deployment)):
        note += f" `tts simulate --placements --gpus {machine.gpus}` compares ways to use them all."
    return note
