"""SGLang: its options, as sglang/srt/arg_groups/fields/ of its wheel have them."""

from __future__ import annotations

from .engine import Engine, Options, Start

NEARLY_ALL = 0.99
"""--mem-fraction-static. The pool is the smaller of --max-total-tokens and of what this share of
the memory that was free at the start has left beside the weights (kv_cache_configurator.py):
so near to all of it, the tokens decide."""


def _options(start: Start) -> Options:
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
        "--mem-fraction-static": NEARLY_ALL if start.on_gpu else None,
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


ENGINE = Engine(
    target="sglang",
    version="0.5.23",
    facts="sglang/srt/arg_groups/fields/, mem_cache/kv_cache_configurator.py of the wheel",
    program=("sglang", "serve"),
    image="lmsysorg/sglang:v0.5.23",
    install="uv tool install 'sglang[all]==0.5.23'",
    options=_options,
    environment=lambda _: {},
    block=1,
    graphs=lambda sequences: sum(
        size <= sequences
        for size in {1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 513, 16), sequences}
    ),
)
