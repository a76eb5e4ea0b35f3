"""The Triton Python model of an engine of target openvino, which runs in a process of its own.

Triton imports this through the repository's model.py.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from tts.build.manifest import read_engine_config

from .engine_messages import Open
from .engine_thread import EngineThread
from .generate_request import GenerateRequest, Limits
from .loading import COMPILING, OPEN, READING, Stage, read_weights, tell
from .responses import Response, response_tensors, score_tensors
from .statistics import Statistics, gauges
from .triton_model import EngineModel


class TritonPythonModel(EngineModel):
    """One OpenVINO engine behind Triton's Python backend: `generator`, or `prm` with its scores."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Open the engine named by the model configuration."""
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
        config = json.loads(args["model_config"])
        settings = {key: value["string_value"] for key, value in config["parameters"].items()}
        engine_dir = _path(settings["gpt_model_path"])
        engine = read_engine_config(engine_dir)
        block_size = int(settings["tokens_per_block"])
        guided = bool(settings["guided_decoding_backend"])
        limits = Limits(
            vocab_size=engine.vocab_size,
            max_seq_len=int(settings["max_seq_len"]),
            max_num_tokens=int(settings["max_num_tokens"]),
            block_size=block_size,
            blocks=int(settings["max_tokens_in_paged_kv_cache"]) // block_size,
            max_active=int(config["max_batch_size"]),
            chunked_context=settings["enable_chunked_context"] == "true",
            kv_reuse=settings["enable_kv_cache_reuse"] == "true",
            labels=len(engine.label_token_ids or ()),
            decoupled=pb_utils.using_decoupled_model_transaction_policy(config),
            exclude_input=settings["exclude_input_in_output"] == "true",
            guided_end_id=engine.eos_token_ids[0] if guided else None,
            host=True,
        )
        self.serve(args, limits)
        if limits.labels:
            self._must_be_requested = set()  # a score is answered by itself
        log = settings["iteration_log"]
        name = args["model_name"]
        tell(Stage(name, READING, 0.0))
        for weights in engine_dir.glob("*.bin"):
            read_weights(weights, lambda fraction: tell(Stage(name, READING, fraction)))
        tell(Stage(name, COMPILING))
        opening = Open(
            engine_dir,
            limits,
            threads=int(settings["threads"]),
            statistics_s=int(settings["stats_check_period_ms"]) / 1000,
            iteration_log=_path(log) if log else None,
            tokenizer_dir=_path(settings["tokenizer_dir"]) if guided else None,
        )
        self._host = EngineThread(
            opening,
            cancel_check_s=int(settings["cancellation_check_period_ms"]) / 1000,
            on_statistics=self._publish_statistics,
        )
        self._host.call(partial(self._publish_statistics, Statistics()))
        tell(Stage(name, OPEN))

    def _output(self, request: GenerateRequest, response: Response) -> dict[str, Any]:
        if not self._limits.labels:
            return response_tensors(request, response)
        return score_tensors(response)

    def _publish_statistics(self, statistics: Statistics) -> None:
        self._publish(gauges(statistics, self._limits))


def _path(text: str) -> Path:
    """A path of a model's configuration; this interpreter takes file names for ASCII."""
    return Path(os.fsdecode(text.encode()))
