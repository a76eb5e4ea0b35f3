"""llama.cpp's llama-server: its options, as `llama-server --help` has them."""

from __future__ import annotations

from .engine import Engine, Options, Start

PHYSICAL = 512
"""llama.cpp's default of --ubatch-size, the tokens that are computed at a time."""


def _options(start: Start) -> Options:
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
        "--ubatch-size": min(start.tokens, PHYSICAL),
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


ENGINE = Engine(
    target="llama.cpp",
    version="b10434",
    facts="llama-server --help of this build, tools/server/README.md",
    program=("llama-server",),
    image="ghcr.io/ggml-org/llama.cpp:server-cuda-b10434",
    install="https://github.com/ggml-org/llama.cpp/releases has binaries of llama-server",
    options=_options,
    environment=lambda _: {},
    key_variable="LLAMA_API_KEY",
    program_in_image="/app/llama-server",  # .devops/cuda.Dockerfile
    block=1,
)
