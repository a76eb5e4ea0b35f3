"""Known reasons why a server of TensorRT-LLM engines did not start, recognised in its log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from . import triton_log


@dataclass(frozen=True)
class Failure:
    """What went wrong, and what to do."""

    message: str
    hint: str


# (pattern in the log of docker, Triton or TensorRT-LLM; message; hint). Named groups fill the text.
KNOWN: list[tuple[str, str, str]] = [
    (
        r"Unable to find image '(?P<image>[^']+)'|No such image: (?P<name>\S+?)\.?\s",
        "The container image {image}{name} is not on this machine.",
        "Fetch it (about 14 GB): docker pull {image}{name}",
    ),
    (
        r"could not select device driver|unknown or invalid runtime name: nvidia"
        r"|nvidia-container-cli: initialization error",
        "Docker cannot give a container the GPUs of this machine.",
        "Install the NVIDIA driver and the NVIDIA Container Toolkit, then restart docker.",
    ),
    (
        r"Cannot connect to the Docker daemon|failed to connect to the docker API",
        "Docker is installed, but its daemon does not run.",
        "Start it: sudo systemctl start docker",
    ),
    (
        r"permission denied while trying to connect to the [Dd]ocker",
        "This user may not use docker.",
        "Add the user to the group docker, and log in again.",
    ),
    (
        r"unsatisfied condition: cuda>=(?P<cuda>[\d.]+)",
        "The NVIDIA driver of this machine is too old for the container, which needs CUDA {cuda}.",
        "Update the driver (590.44.01 for the containers 26.04 to 26.07).",
    ),
    (
        r"[Vv]ersion tag does not match",
        "An engine was built by another version of TensorRT than the one that loads it.",
        "Build it in the container that serves it: tts build-engines DEPLOYMENT --force",
    ),
    (
        r"expecting compute (?P<built>[\d.]+) got compute (?P<here>[\d.]+)",
        "An engine was built for GPUs of compute capability {built}, and this one has {here}.",
        "Build the engines on the kind of GPU that serves them.",
    ),
    (
        r"[Bb]oth encoder and decoder model paths are empty",
        "An engine folder is missing where the server looks for it (gpt_model_path).",
        "Build the engines on this machine, or copy them to the same path: tts build-engines",
    ),
    (
        r"worldSize is expected to be equal to tp\*pp",
        "An engine was built for another number of GPUs than it is served on.",
        "Build it again: tts build-engines",
    ),
    (
        r"(?:CUDA|cuda).*out of memory|cudaErrorMemoryAllocation|OutOfMemory",
        "The GPU has too little memory for the engines and their KV pools.",
        "Lower kv_cache.tokens (tts plan says what fits), or free the GPU.",
    ),
    (
        r"cannot import name 'PartReasoningText'",
        "The Python package openai in this container does not go with its TensorRT-LLM.",
        "Set tensorrt.container to 26.06, which holds the same TensorRT-LLM 1.2.1.",
    ),
    (
        r"not enough slots available",
        "MPI refuses to start as many ranks as the engines need on this machine.",
        "Give the container at least as many CPU cores as the engines have ranks.",
    ),
]


def explain(log: Path) -> Failure | None:
    """The first known error in a server's log, or None."""
    text = "\n".join([*triton_log.tail(log), ""])
    for pattern, message, hint in KNOWN:
        if found := re.search(pattern, text):
            words = {key: value or "" for key, value in found.groupdict().items()}
            return Failure(message.format(**words), hint.format(**words))
    return None
