"""What the manifests say of a pair without Triton: a `trtllm-serve` for each model, by HTTP."""

from __future__ import annotations

from typing import Any

import yaml

from tts.build.llmapi.target import llm_arguments
from tts.build.llmapi.version import SECOND_CACHE_MANAGER
from tts.build.spec import Deployment, EngineSpec, Role
from tts.build.spec.remote import RemoteGenerator, RemoteSpec, RemoteVerifier

from ..command import container

IMAGE = "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc25"
"""TensorRT-LLM's own container, of a version that has no engines and one KV cache option more."""
PORT = 8000
"""In each container."""
PORTS: dict[Role, int] = {"generator": 8100, "verifier": 8101}
"""On the machine."""
CONFIG = "/etc/tts/config.yaml"
_REMOTE: dict[Role, type[RemoteSpec]] = {"generator": RemoteGenerator, "verifier": RemoteVerifier}
_NOT_THERE = ("model", "skip_tokenizer_init", "trust_remote_code", "gather_generation_logits")
"""Arguments of `LLM` that the server sets itself. Its tokenizer names tokens and takes biases."""


def files(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """The files that trtllm-serve and its clients read, by name, with the variables of each
    template.
    """
    engines = deployment.engines()
    texts = {f"trtllm-serve.{role}.yaml": arguments(spec) for role, spec in engines.items()}
    texts["trtllm-serve.deployment.yaml"] = client(deployment)
    filled: dict[str, dict[str, Any]] = {
        name: {"text": _text(content)} for name, content in texts.items()
    }
    filled["trtllm-serve.compose.yaml"] = {
        "services": {
            role: {
                "checkpoint": spec.checkpoint,
                "folders": [spec.checkpoint, *container.link_targets([spec.checkpoint])],
                "devices": ",".join(map(str, spec.placement.replicas[0])),
                "port": PORTS[role],
            }
            for role, spec in engines.items()
        },
        "serve": {"image": IMAGE, "port": PORT, "config": CONFIG},
    }
    return filled


def arguments(spec: EngineSpec) -> dict[str, Any]:
    """The server's configuration: the arguments of `LLM` that target llmapi has for the engine.

    The KV pool is a number of tokens, which the second cache manager would not look at.
    """
    found: dict[str, Any] = {
        name: value for name, value in llm_arguments(spec).items() if name not in _NOT_THERE
    }
    found["kv_cache_config"] = {**found["kv_cache_config"], SECOND_CACHE_MANAGER: False}
    return found


def client(deployment: Deployment) -> dict[str, Any]:
    """The deployment of target openai with which `tts` uses both servers."""
    data: dict[str, Any] = {"name": f"{deployment.name}-http"[:64], "target": "openai"}
    for role, spec in deployment.engines().items():
        known = spec.model_dump(mode="json", exclude_none=True)
        own = {name: known[name] for name in _REMOTE[role].model_fields if name in known}
        data[role] = {
            "url": f"http://{deployment.server.host}:{PORTS[role]}",
            "tokenizer": str(spec.checkpoint),
            **own,
        }
    if deployment.strategies:
        data["strategies"] = deployment.model_dump(mode="json")["strategies"]
    return data


def _text(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True).rstrip()
