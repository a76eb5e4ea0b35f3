"""A checkpoint of any size with random weights: nonsense, at the speed of a model of its shape.

It measures engines where no real model is at hand.

    scripts/run random_checkpoint checkpoints/gen --like Llama-3.2-1B-Instruct
    scripts/run random_checkpoint checkpoints/prm --params 100M --tokenizer CHECKPOINT
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tts.base import paths
from tts.base.errors import CheckpointError, ConfigError, TtsError
from tts.build.checkpoint import expected_tensors
from tts.build.model_config import (
    ARCHITECTURES,
    ModelConfig,
    known_model,
    known_names,
    parse_model_config,
)
from tts.build.tensorrt.engine_memory import parameters as parameters_of
from tts.build.tokenizer import Tokenizer
from tts.build.weights import INDEX

ARCHITECTURE = "LlamaForCausalLM"
POSITIONS = 4096
SHARD_BYTES = 2 * 10**9
DEVIATION = 0.02  # initializer_range of the supported architectures
ASPECT = 96  # hidden size per layer that is aimed at: between small Llamas (64) and large (128)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMB])")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def main() -> None:
    """Make the checkpoint that the command line describes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    demo = paths.deployments_dir().parent / "checkpoints" / "demo-generator"
    parser.add_argument("out", type=Path, metavar="DIR", help="the folder to make")
    shape = parser.add_mutually_exclusive_group(required=True)
    shape.add_argument("--params", metavar="SIZE", help="parameters, such as 25M or 1.2B")
    shape.add_argument("--like", metavar="MODEL", help="a published model; an unknown lists all")
    parser.add_argument("--architecture", default=ARCHITECTURE, help="with --params")
    parser.add_argument("--positions", type=int, default=POSITIONS, help="with --params")
    parser.add_argument("--tokenizer", type=Path, default=demo, metavar="CHECKPOINT")
    parser.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    try:
        size = options.pop("params")
        config = make_random_checkpoint(**options, parameters=size and size_of(size))
    except TtsError as error:
        sys.exit(f"error: {error}")
    print(f"{options['out']}: {parameters_of(config).total:,} parameters, {config.architecture}")


def make_random_checkpoint(
    out: Path,
    *,
    tokenizer: Path,
    parameters: int | None = None,
    like: str | None = None,
    architecture: str = ARCHITECTURE,
    positions: int = POSITIONS,
    seed: int = 0,
) -> ModelConfig:
    """Write a checkpoint to `out`, which must not exist, and return its configuration.

    Its shape is that of the published model `like`, or one of about `parameters` parameters with
    room for `positions` tokens; exactly one of the two is given. `tokenizer` is the checkpoint
    whose tokenizer it takes. The same arguments give the same bytes. Raises a TtsError for what
    cannot be made.
    """
    known_tokenizer = Tokenizer(tokenizer)
    if (parameters is None) == (like is None):
        raise ConfigError("Give either a number of parameters or a model to be like.")
    if parameters is None:
        fields = _fields_like(str(like))
    else:
        _require_known(architecture)
        fields = fields_of_size(parameters, architecture, known_tokenizer.vocab_size, positions)
    fields |= {"eos_token_id": known_tokenizer.eos_ids[0], "torch_dtype": "float16"}
    config = parse_model_config(out / "config.json", fields)
    if config.vocab_size < known_tokenizer.vocab_size:
        raise ConfigError(
            f"The tokenizer knows {known_tokenizer.vocab_size:,} tokens, the model only "
            f"{config.vocab_size:,}.",
            hint="Take a tokenizer with a smaller vocabulary, or a number of parameters.",
        )
    try:
        out.mkdir(parents=True)
        _write(out, fields, config, tokenizer, seed)
    except OSError as error:
        raise CheckpointError(f"{out} cannot be made: {error.strerror or error}.") from error
    return config


def size_of(text: str) -> int:
    """The number that a text such as "25M" or "1.2B" stands for; raises ConfigError."""
    match = _SIZE.fullmatch(text.upper())
    if not match or not (count := float(match[1]) * {"K": 1e3, "M": 1e6, "B": 1e9}[match[2]]):
        raise ConfigError(f"{text!r} is not a size such as 25M or 1.2B.")
    return round(count)


def _fields_like(name: str) -> dict[str, Any]:
    model = known_model(Path(name))
    if model is None:
        raise ConfigError(
            f"There is no published shape of {name!r}; there are {', '.join(known_names())}."
        )
    return dict(model.config)


def _require_known(architecture: str) -> None:
    if architecture not in ARCHITECTURES:
        raise ConfigError(
            f"There is no architecture {architecture!r}; there are {', '.join(ARCHITECTURES)}."
        )


def fields_of_size(size: int, architecture: str, vocab_size: int, positions: int) -> dict[str, Any]:
    """config.json of a model with about as many parameters, as wide for its depth as real ones."""

    def fields(hidden: int, layers: int) -> dict[str, Any]:
        heads = hidden // 64
        return {
            "architectures": [architecture],
            "model_type": architecture.removesuffix("ForCausalLM").lower(),  # transformers reads it
            "hidden_act": "silu",
            "hidden_size": hidden,
            "intermediate_size": 64 * round(hidden * 8 / 3 / 64),
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": next(n for n in (heads // 4, heads) if n and not heads % n),
            "head_dim": 64,
            "vocab_size": 64 * math.ceil(vocab_size / 64),
            "max_position_embeddings": positions,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "sliding_window": None,
        }

    def total(candidate: Mapping[str, Any]) -> int:
        return parameters_of(parse_model_config(Path("config.json"), candidate)).total

    candidates = []
    for hidden in range(64, 16385, 64):
        one, two = total(fields(hidden, 1)), total(fields(hidden, 2))
        layers = max(1, round((size - one) / (two - one)) + 1)
        off = abs(math.log((one + (layers - 1) * (two - one)) / size))
        candidates.append((20 * off + abs(math.log(hidden / layers / ASPECT)), hidden, layers))
        if one > 4 * size:
            break
    _, hidden, layers = min(candidates)
    return fields(hidden, layers)


def _write(
    out: Path, fields: Mapping[str, Any], config: ModelConfig, tokenizer: Path, seed: int
) -> None:
    """Write config, tokenizer and weights, in shards if there are many."""
    (out / "config.json").write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    for name in _TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copy(tokenizer / name, out / name)
    shards = list(_split(expected_tensors(config)))
    numbers = np.random.default_rng(seed)
    places: dict[str, str] = {}
    for index, shard in enumerate(shards, start=1):
        file = f"model-{index:05}-of-{len(shards):05}.safetensors"
        file = "model.safetensors" if len(shards) == 1 else file
        tensors = {name: _tensor(name, shape, numbers) for name, shape in shard.items()}
        save_file(tensors, out / file, metadata={"format": "pt"})
        places |= dict.fromkeys(shard, file)
    if len(shards) > 1:
        index_file = {"metadata": {}, "weight_map": places}
        (out / INDEX).write_text(json.dumps(index_file, indent=1) + "\n", encoding="utf-8")


def _split(tensors: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, tuple[int, ...]]]:
    """Tensors in files of at most about SHARD_BYTES, so that memory holds one at a time."""
    shard: dict[str, tuple[int, ...]] = {}
    filled = 0
    for name, shape in tensors.items():
        needed = 2 * math.prod(shape)
        if shard and filled + needed > SHARD_BYTES:
            yield shard
            shard, filled = {}, 0
        shard[name] = shape
        filled += needed
    yield shard


def _tensor(name: str, shape: tuple[int, ...], numbers: np.random.Generator) -> Any:
    """Normal weights, norms of one, biases of zero: as a model is before training."""
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float16)
    if name.endswith(".bias"):
        return np.zeros(shape, np.float16)
    return (numbers.standard_normal(shape, np.float32) * np.float32(DEVIATION)).astype(np.float16)


if __name__ == "__main__":
    main()
