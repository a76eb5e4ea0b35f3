"""The flags that trtllm-build must get, worked out a second time, and single faults in them.

They follow from the deployment alone, not from the code that makes the command: the two were
written independently.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tts.build.model_config import ModelConfig
from tts.build.spec import EngineSpec, Role
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import Workspace


def flag_problems(
    role: Role, spec: EngineSpec, model: ModelConfig, work: Workspace, arguments: Sequence[str]
) -> Iterator[str]:
    """What differs from what the deployment asks for."""
    given = _given(arguments)
    expected = _expected(role, spec, model, work)
    for flag in sorted(expected.keys() | given.keys()):
        wanted, found = expected.get(flag), given.get(flag)
        if wanted is None:
            yield f"{flag} {found}".rstrip() + " does not belong there"
        elif found is None:
            yield f"{flag} {wanted}".rstrip() + " is missing"
        elif found != wanted:
            yield f"{flag} is {found or 'empty'}; must be {wanted}"


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


def value(words: list[str], at: int, rng: random.Random) -> None:
    """Another value that the flag could have."""
    flag, old = contract.build_flags()[words[at]], words[at + 1]
    if flag.choices:
        words[at + 1] = rng.choice([choice for choice in flag.choices if choice != old])
    elif flag.type == "int":
        words[at + 1] = rng.choice(
            [str(2 * int(old)), str(int(old) + 1), "1" if old != "1" else "3"]
        )
    else:
        words[at + 1] = rng.choice([f"{old}x", str(Path(old).parent)])


def nonsense(words: list[str], at: int, rng: random.Random) -> None:
    words[at + 1] = rng.choice(["", "-1", "none", "0x10", "1e3", "True"])


def dropped(words: list[str], at: int, rng: random.Random) -> None:
    del words[at : at + (1 if words[at + 1].startswith("--") else 2)]


def misspelt(words: list[str], at: int, rng: random.Random) -> None:
    words[at] = rng.choice([words[at] + "s", words[at].replace("_", "-", 1) + "x", words[at][:-1]])


def swapped(words: list[str], at: int, rng: random.Random) -> None:
    """The values of two flags."""
    others = [i for i in flags_with_values(words) if words[i + 1] != words[at + 1]]
    other = rng.choice(others)
    words[at + 1], words[other + 1] = words[other + 1], words[at + 1]


def added(words: list[str], at: int, rng: random.Random) -> None:
    """A flag that exists and nobody asked for."""
    unused = sorted(set(contract.build_flags()) - set(words))
    name = rng.choice(unused)
    flag = contract.build_flags()[name]
    argument = flag.choices[0] if flag.choices else "1"
    words += [name] if flag.type == "switch" else [name, argument]


def switched(words: list[str], at: int, rng: random.Random) -> None:
    """Logits of every generated token: the verifier's engine, and only it, must have them."""
    if "--gather_generation_logits" in words:
        words.remove("--gather_generation_logits")
    else:
        words.append("--gather_generation_logits")


FAULTS = [value, nonsense, dropped, misspelt, swapped, added, switched]


def flags_with_values(words: Sequence[str]) -> list[int]:
    return [
        i
        for i, word in enumerate(words[:-1])
        if word.startswith("--") and not words[i + 1].startswith("--")
    ]
