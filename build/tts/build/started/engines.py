"""The engines that can be started, by target."""

from __future__ import annotations

from collections.abc import Mapping

from ..spec import StartedTarget
from . import llama_cpp, sglang, trtllm_serve, vllm
from .engine import Engine

ENGINES: Mapping[StartedTarget, Engine] = {
    module.ENGINE.target: module.ENGINE for module in (vllm, sglang, llama_cpp, trtllm_serve)
}
