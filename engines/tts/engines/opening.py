"""How the engines of a deployment are opened, whoever opens them."""

from __future__ import annotations

from pathlib import Path

from tts.base import paths
from tts.build.inputs import Inputs
from tts.build.manifest import read_engine_config
from tts.build.openvino.threads import threads_of
from tts.build.spec import Deployment, Role

from .engine_messages import Open
from .generate_request import EngineLimits


def opening_of(
    deployment: Deployment,
    role: Role,
    *,
    decoupled: bool = True,
    statistics_s: float = 0.0,
    iteration_log: Path | None = None,
    inputs: Inputs | None = None,
) -> Open:
    """The message that opens an engine of target openvino.

    By default it reports the statistics of every step.

    Raises BuildError for an engine that is not built, and CheckpointError as `threads_of` does.
    """
    spec = deployment.engines()[role]
    folder = paths.engine_dir(deployment.name, role)
    engine = read_engine_config(folder)
    guided = role == "generator" and deployment.generator.guided_decoding
    limits = EngineLimits(
        vocab_size=engine.vocab_size,
        max_seq_len=spec.max_seq_len,
        max_num_tokens=spec.max_num_tokens,
        block_size=spec.kv_cache.block_size,
        blocks=spec.kv_cache.blocks,
        max_active=spec.max_batch_size,
        chunked_context=spec.chunked_context,
        # without chunks the pipeline shares a partly filled block and never copies it
        kv_reuse=spec.kv_cache.reuse and spec.chunked_context,
        labels=len(engine.label_token_ids or ()),
        writes=engine.output_vocab_size >= engine.vocab_size,
        decoupled=decoupled,
        guided_end_id=engine.eos_token_ids[0] if guided else None,
    )
    return Open(
        folder,
        limits,
        threads=threads_of(deployment, inputs=inputs)[role],
        statistics_s=statistics_s,
        iteration_log=iteration_log,
        tokenizer_dir=spec.checkpoint if guided else None,
    )
