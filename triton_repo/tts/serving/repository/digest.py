"""The digest by which clients recognise the deployment that a server serves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tts.base import paths
from tts.build.manifest import read_manifest
from tts.build.spec import Deployment
from tts.engines import wire

DIGEST = "deployment_digest"
"""Name of the parameter of every model's configuration that holds the digest."""
# what only the orchestrator uses, and addresses and paths: they do not make it another server
_NOT_SERVED: dict[str, Any] = {
    "server": True,
    "endpoints": True,
    "answer_timeout_s": True,
    "execution": True,
    "strategies": True,
    "generator": {
        "checkpoint",
        "in_flight_requests",
        "system_prompt",
        "step_delimiter",
        "chat_template",
        "chat_template_kwargs",
        "thinking",
    },
    "verifier": {
        **dict.fromkeys(
            (
                "chat_template",
                "chat_template_kwargs",
                "reads_thinking",
                "calibration",
                "scores",
                "checkpoint",
                "in_flight_tokens",
                "in_flight_requests",
                "criteria",
                "format",
                "prompt",
                "step_tag",
                "system_prompt",
                "template",
            ),
            True,
        ),
        "critique": {"max_tokens", "temperature", "top_p", "samples", "thinking"},
    },
}
# what an engine's outputs depend on; not when, where and with what verification it was built
_ENGINE = {"checkpoint_sha256", "settings", "engine_files"}


def code_of(deployment: Deployment, model: str) -> Path | None:
    """The code of a model: the target's own, or what targets share; None where a backend has it."""
    for part in (deployment.target, "common"):
        code = paths.templates_dir() / part / model / "1" / "model.py"
        if code.is_file():
            return code
    return None


def deployment_digest(deployment: Deployment) -> str:
    """SHA-256 over what defines the served models: engines, policies, code.

    Addresses and what only the orchestrator reads are left out. Clients compare it with the
    parameter `deployment_digest` of a server's configurations.
    """
    engines = deployment.engines()
    served = {*engines, "verifier"} if deployment.shares_engine else {*engines}
    others = {role: True for role in ("generator", "verifier") if role not in served}
    models = {"spec": deployment.model_dump(mode="json", exclude=_NOT_SERVED | others)}
    for role in engines:
        manifest = read_manifest(paths.engine_dir(deployment.name, role))
        models[role] = manifest.model_dump(mode="json", include=_ENGINE) if manifest else {}
    digest = hashlib.sha256(json.dumps(models, sort_keys=True).encode())
    names = wire.GENERATOR, wire.PRM, wire.PRM_ENGINE, wire.PRM_SCORE
    codes = filter(None, (code_of(deployment, name) for name in names))
    for file in (Path(__file__).with_name("model_configs.py"), *codes):
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()
