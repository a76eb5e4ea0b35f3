"""The script that runs inside NVIDIA's container: checks the machine, converts a checkpoint.

It imports nothing of this toolkit, which the container does not have; of TensorRT-LLM it calls
only what its version 1.2.1 is known to have. Its output begins with "tts: ", errors with
"tts: error: ".
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import sys
from pathlib import Path
from typing import Any, NoReturn


def main() -> None:
    """Run `check` or `convert` as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)

    checking = commands.add_parser("check", help="is this the right container and GPU?")
    checking.add_argument("--tensorrt-llm", required=True)
    checking.add_argument("--compute-capability", required=True)
    checking.add_argument("--gpus", type=int, required=True)
    checking.set_defaults(run=check)

    converting = commands.add_parser("convert", help="make a TensorRT-LLM checkpoint")
    converting.add_argument("--checkpoint", type=Path, required=True)
    converting.add_argument("--output", type=Path, required=True)
    converting.add_argument("--model-class", required=True)
    converting.add_argument("--dtype", choices=("float16", "bfloat16"), required=True)
    converting.add_argument("--tensor-parallel", type=int, required=True)
    converting.add_argument("--pipeline-parallel", type=int, required=True)
    converting.add_argument("--expert-parallel", type=int, required=True)
    converting.add_argument("--split-embedding", action="store_true")
    converting.add_argument("--quant-algo")
    converting.add_argument("--kv-cache-quant-algo")
    converting.add_argument("--calibration-set", help="measure scales on it; without: weights only")
    converting.add_argument("--calibration-samples", type=int)
    converting.add_argument("--calibration-length", type=int)
    converting.set_defaults(run=convert)

    arguments = parser.parse_args()
    arguments.run(arguments)


def check(arguments: argparse.Namespace) -> None:
    """Refuse another TensorRT-LLM, too few GPUs, or GPUs of another compute capability."""
    try:
        version = importlib.metadata.version("tensorrt_llm").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        fail("there is no TensorRT-LLM in this container")
    if shutil.which("trtllm-build") is None:
        fail("there is no trtllm-build in this container")
    if version != arguments.tensorrt_llm:
        fail(f"this container has TensorRT-LLM {version}, not {arguments.tensorrt_llm}")
    import torch
    from tensorrt_llm import models  # noqa: F401 - as for a conversion: it may not import

    count = torch.cuda.device_count()
    if count < arguments.gpus:
        fail(f"{count} GPUs can be used in this container, but {arguments.gpus} are needed")
    for device in range(arguments.gpus):
        capability = "{}.{}".format(*torch.cuda.get_device_capability(device))
        if capability != arguments.compute_capability:
            fail(
                f"GPU {device} ({torch.cuda.get_device_name(device)}) has compute capability "
                f"{capability}, not {arguments.compute_capability}"
            )
    say(f"TensorRT-LLM {version}, {count} GPUs of {arguments.compute_capability}")


def convert(arguments: argparse.Namespace) -> None:
    """Write a checkpoint that trtllm-build reads: config.json and a file of weights per rank."""
    from tensorrt_llm import Mapping, models
    from tensorrt_llm.llmapi import QuantAlgo, QuantConfig

    model_class: Any = getattr(models, arguments.model_class)
    arguments.output.mkdir(parents=True, exist_ok=True)
    source = neutral_path(arguments.checkpoint, arguments.output.parent)
    tensor, pipeline = arguments.tensor_parallel, arguments.pipeline_parallel
    experts: dict[str, int] = {}
    if arguments.expert_parallel > 1:
        experts = {
            "moe_ep_size": arguments.expert_parallel,
            "moe_tp_size": tensor // arguments.expert_parallel,
        }
    weights, cache = arguments.quant_algo, arguments.kv_cache_quant_algo
    quantisation = QuantConfig(
        quant_algo=QuantAlgo[weights] if weights else None,
        kv_cache_quant_algo=QuantAlgo[cache] if cache else None,
    )

    if arguments.calibration_set:
        say(f"quantising to {weights}, calibrated on {arguments.calibration_set}")
        model_class.quantize(
            source,
            str(arguments.output),
            dtype=arguments.dtype,
            mapping=Mapping(world_size=tensor * pipeline, tp_size=tensor, pp_size=pipeline),
            quant_config=quantisation,
            calib_dataset=arguments.calibration_set,
            calib_batches=arguments.calibration_samples,
            calib_batch_size=1,
            calib_max_seq_length=arguments.calibration_length,
        )
        return

    for rank in range(tensor * pipeline):
        say(f"converting rank {rank} of {tensor * pipeline}")
        model = model_class.from_hugging_face(
            source,
            dtype=arguments.dtype,
            mapping=Mapping(
                world_size=tensor * pipeline, rank=rank, tp_size=tensor, pp_size=pipeline, **experts
            ),
            quant_config=quantisation,
            trust_remote_code=False,
            use_parallel_embedding=arguments.split_embedding,
            embedding_sharding_dim=0,
        )
        model.save_checkpoint(str(arguments.output), save_config=rank == 0)
        del model  # before the next rank is loaded


def neutral_path(checkpoint: Path, folder: Path) -> str:
    """A path of the checkpoint that contains no name of a model family.

    TensorRT-LLM takes any path with "vila", "mpt" and so on in it for a model of that family: a
    checkpoint in /data/prompts would be converted as the wrong family.
    """
    link = folder / "source"
    link.unlink(missing_ok=True)
    link.symlink_to(checkpoint, target_is_directory=True)
    os.chdir(folder)
    return link.name


def say(text: str) -> None:
    """Print a line that the build log shows as progress."""
    print(f"tts: {text}", flush=True)  # noqa: T201


def fail(reason: str) -> NoReturn:
    """End with a reason that the build repeats to the user."""
    say(f"error: {reason}")
    sys.exit(3)


if __name__ == "__main__":
    main()
