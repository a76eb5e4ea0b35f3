"""Known reasons why a step of a build fails, recognised in its log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class Cause(NamedTuple):
    """What went wrong in a step, the line that says so, and what to do."""

    sentence: str
    line: str
    hint: str | None = None


# Open MPI's own words for a process that could not start MPI, as public reports have them
_NO_MPI = re.compile(
    r"No network interfaces were found|unable to find network interfaces"
    r"|(opal|orte|prte|ompi_mpi|MPI)_(init|INIT)\w* failed|error occurred in MPI_Init"
    r"|(opal|orte|prte|mpi)_init:startup|PML add procs failed|PMIX ERROR: \S*UNREACH"
)
_OURS = "tts: error: "
KNOWN: tuple[tuple[str, str, str | None], ...] = (
    (
        r"cannot import name 'PartReasoningText'",
        "The Python package openai in this container does not go with its TensorRT-LLM.",
        "Set tensorrt.container to 26.06, which holds the same TensorRT-LLM 1.2.1.",
    ),
    (
        r"No space left on device|\[Errno 28\]|ENOSPC",
        "The disk is full.",
        "Free some space, or set TTS_HOME to a folder on a larger disk.",
    ),
    (
        r"Cannot connect to the Docker daemon|docker daemon is not running"
        r"|permission denied while trying to connect to the Docker",
        "The docker daemon does not answer, or this user may not use it.",
        "Start it (systemctl start docker), or add the user to the group docker.",
    ),
    (
        r"The container name .* is already in use",
        "A container of an earlier build is still running.",
        "Stop it with docker rm -f and its name, then build again.",
    ),
    (
        r"unsatisfied condition: (cuda|driver)|driver version is insufficient"
        r"|NVIDIA driver on your system is too old|forward compatibility was attempted",
        "The NVIDIA driver is too old for this container.",
        "Install driver 590.44.01 or later (on data-centre GPUs, a branch that CUDA 13.1's "
        "forward compatibility supports).",
    ),
    (
        r"could not select device driver|nvidia-container-cli|nvidia-container-runtime"
        r"|no CUDA-capable device|CUDA_ERROR_NO_DEVICE|Found no NVIDIA driver"
        r"|No CUDA GPUs are available",
        "The container cannot use the GPU.",
        "Install the NVIDIA Container Toolkit and run: nvidia-ctk runtime configure",
    ),
    (
        r"manifest (unknown|for .* not found)|pull access denied|unauthorized: |TLS handshake"
        r"|dial tcp",
        "The container image cannot be downloaded.",
        "Try docker pull with the image's name; nvcr.io must be reachable.",
    ),
    (
        r"incompatible device|expecting compute \d|Version tag does not match"
        r"|no kernel image is available",
        "This GPU or this version of TensorRT differs from the one that the engine was built for.",
        "Set tensorrt.gpu in the deployment file to the GPU of this machine.",
    ),
    (
        r"CUDA out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|OutOfMemory \(",
        "The GPU ran out of memory.",
        "Stop what else runs on it (nvidia-smi shows it), lower max_num_tokens or "
        "max_batch_size, or split the model with tensorrt.tensor_parallel.",
    ),
    (
        r"NotImplementedError: Unsupported dataset|ConnectionError|Couldn't (reach|find)"
        r"|DatasetNotFoundError|Max retries exceeded|Temporary failure in name resolution"
        r"|OfflineModeIsEnabled",
        "The calibration set cannot be loaded.",
        "Set tensorrt.calibration.dataset to a local folder whose split train has a column text.",
    ),
    (
        _NO_MPI.pattern,
        "MPI does not start in the container.",
        "The log says what it misses; it may be a network interface that docker does not give.",
    ),
    (
        r"unrecognized arguments|invalid choice|got an unexpected keyword argument",
        "TensorRT-LLM does not know an argument that it was given.",
        "Please report this with the log: the arguments were checked for TensorRT-LLM 1.2.1.",
    ),
)
"""Pattern in the log; what went wrong; what to do."""
_ERROR_LINE = re.compile(r"error|\[E\]|exception|assert|fail", re.IGNORECASE)
_KILLED = 137


def mpi_did_not_start(lines: Sequence[str]) -> bool:
    """Whether a failed step could not initialise MPI, which may want a network interface."""
    return any(_NO_MPI.search(line) for line in lines)


def find_cause(lines: Sequence[str], status: int) -> Cause:
    """The cause of a failure, from the step's lines of the log and its exit status."""
    told = [line for line in map(str.strip, lines) if line]
    for line in reversed(told):
        if line.startswith(_OURS):
            reason = line.removeprefix(_OURS)
            return Cause(f"{reason[0].upper()}{reason[1:]}.", line)
    for pattern, sentence, hint in KNOWN:
        for line in reversed(told):
            if re.search(pattern, line):
                return Cause(sentence, line, hint)
    last = next((line for line in reversed(told) if _ERROR_LINE.search(line)), "")
    last = last or (told[-1] if told else "it said nothing")
    if status in (_KILLED, -9):
        return Cause(
            "It was killed, most likely because the machine ran out of memory.",
            last,
            "Free some memory, or build on a machine with more.",
        )
    return Cause(f"It ended with status {status}.", last)
