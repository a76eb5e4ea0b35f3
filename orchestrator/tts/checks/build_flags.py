"""The flags that trtllm-build must get, worked out a second time.

They follow from the deployment alone, not from the code that makes the command: the check is worth
something because the two were written independently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tts.build.model_config import ModelConfig
from tts.build.spec import EngineSpec, Role
from tts.build.tensorrt.commands import Workspace

_WHY = {
    "--max_batch_size": "config.pbtxt promises as many requests at a time",
    "--max_input_len": "a longer prompt is refused",
    "--max_seq_len": "a longer request is refused or cut",
    "--max_num_tokens": "the memory plan reserves activations for as many tokens",
    "--opt_num_tokens": "kernels are tuned for this many: decoding, or reading prompts",
    "--max_beam_width": "search branches by requests; a wider beam multiplies the memory",
    "--kv_cache_type": "batching in flight and prefix reuse need pages",
    "--tokens_per_block": "prefixes are shared and pools counted in blocks of this size",
    "--remove_input_padding": "batching in flight needs it",
    "--gpt_attention_plugin": "the paged KV cache lives in the plugin",
    "--context_fmha": "without it paged context attention is off",
    "--use_paged_context_fmha": "KV reuse and chunked context need it",
    "--use_fp8_context_fmha": "the builder forces another value with a warning only",
    "--gemm_plugin": "products are computed in another precision, or slowly",
    "--use_fused_mlp": "the MLP of this precision is not fused, or needs to be",
    "--multiple_profiles": "it excludes opt_num_tokens",
    "--logits_dtype": "config.pbtxt declares 32-bit logits; with 16 saturated scores are tied",
    "--gather_generation_logits": "scores are read from the verifier's logits, and only there",
    "--moe_plugin": "experts are computed by the plugin",
    "--workers": "ranks are built one per GPU",
}


def flag_problems(
    role: Role, spec: EngineSpec, model: ModelConfig, work: Workspace, arguments: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """What differs from what the deployment asks for, and why it matters."""
    given = _given(arguments)
    expected = _expected(role, spec, model, work)
    for flag in sorted(expected.keys() | given.keys()):
        wanted, found = expected.get(flag), given.get(flag)
        why = _WHY.get(flag, "the build would read or write another place")
        if wanted is None:
            yield f"{flag} {found}".rstrip() + " does not belong there", "nobody asked for it"
        elif found is None:
            yield f"{flag} {wanted}".rstrip() + " is missing", why
        elif found != wanted:
            yield f"{flag} is {found or 'empty'}; must be {wanted}", why


def _given(arguments: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    flag = ""
    for word in arguments:
        if word.startswith("--"):
            flag = word
            given[flag] = ""
        else:
            given[flag] = f"{given.get(flag, '')} {word}".strip()
    return given


def _expected(
    role: Role, spec: EngineSpec, model: ModelConfig, work: Workspace
) -> Mapping[str, str]:
    batch, length = spec.max_batch_size, spec.max_seq_len
    tokens = min(spec.max_num_tokens, batch * length)  # beyond that the builder clips
    sixteen = spec.precision in ("fp16", "bf16")
    attention = spec.precision == "fp8" and spec.placement.kv_precision == "fp8"
    expected = {
        "--checkpoint_dir": str(work.checkpoint),
        "--output_dir": str(work.engine),
        "--input_timing_cache": str(work.timing_cache),
        "--output_timing_cache": str(work.new_timings),
        "--max_batch_size": str(batch),
        "--max_input_len": str(length),
        "--max_seq_len": str(length),
        "--max_num_tokens": str(tokens),
        "--opt_num_tokens": str(tokens if role == "verifier" else min(batch, tokens)),
        "--max_beam_width": "1",
        "--kv_cache_type": "paged",
        "--tokens_per_block": str(spec.kv_cache.block_size),
        "--remove_input_padding": "enable",
        "--gpt_attention_plugin": "auto",
        "--context_fmha": "enable",
        "--use_paged_context_fmha": "enable",
        "--use_fp8_context_fmha": "enable" if attention else "disable",
        "--gemm_plugin": "disable" if spec.precision == "fp8" else "auto",
        "--use_fused_mlp": "enable" if sixteen or spec.precision == "fp8" else "disable",
        "--multiple_profiles": "disable",
        "--logits_dtype": "float32",
        "--workers": str(spec.placement.ranks),
    }
    if role == "verifier":
        expected["--gather_generation_logits"] = ""
    if model.experts:
        expected["--moe_plugin"] = "auto"
    return expected
