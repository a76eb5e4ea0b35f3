"""The Triton Python model of an engine of target openvino, which runs in a process of its own.

Triton imports this through the repository's model.py.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from .engine_messages import OPENING, decode_opening
from .engine_thread import EngineThread
from .generate_request import GenerateRequest
from .loading import COMPILING, OPEN, READING, Stage, read_weights, tell
from .responses import Response, response_tensors, score_tensors
from .statistics import Statistics, gauges
from .triton_model import EngineModel


class TritonPythonModel(EngineModel):
    """One OpenVINO engine behind Triton's Python backend: `generator`, or `prm` with its scores."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Open the engine named by the model configuration."""
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
        parameters = json.loads(args["model_config"])["parameters"]
        opening = decode_opening(parameters[OPENING]["string_value"])
        self.serve(args, opening.limits)
        if opening.limits.labels:
            self._must_be_requested = set()  # a score is answered by itself
        name = args["model_name"]
        tell(Stage(name, READING, 0.0))
        for weights in opening.engine_dir.glob("*.bin"):
            read_weights(weights, lambda fraction: tell(Stage(name, READING, fraction)))
        tell(Stage(name, COMPILING))
        self._host = EngineThread(opening, on_statistics=self._publish_statistics)
        self._host.call(partial(self._publish_statistics, Statistics()))
        tell(Stage(name, OPEN))

    def _output(self, request: GenerateRequest, response: Response) -> dict[str, Any]:
        if not self._limits.labels:
            return response_tensors(request, response)
        return score_tensors(response)

    def _publish_statistics(self, statistics: Statistics) -> None:
        self._publish(gauges(statistics, self._limits))
