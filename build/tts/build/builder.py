"""From a deployment to its engines: only what has changed, whole or not at all."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import paths
from .checkpoint import FileStamp, stamp_files
from .errors import BuildError
from .manifest import (
    CONFIG_FILE,
    MANIFEST_FILE,
    EngineConfig,
    Manifest,
    inspect_engine,
    new_manifest,
    read_engine_config,
    settings_for,
    write_record,
)
from .openvino_export import export_model, save_model
from .plan import Plan, check_length, plan_engine
from .spec import Deployment, Precision, Role, VerifierSpec
from .staging import build_lock, disk_errors, recover, staged
from .tokenizer import Tokenizer
from .verifier_format import verifier_format
from .verify import Verification, missing_packages, verify_engine

VERIFY_BY_DEFAULT_BELOW = 200_000_000
"""Parameters. A larger model is verified only when asked: transformers needs it in fp32 as well."""
_STORED_BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2, "int8": 1}

Say = Callable[[str], None]


@dataclass(frozen=True)
class BuildReport:
    """What became of one engine."""

    role: Role
    folder: Path
    status: Literal["built", "unchanged"]
    seconds: float
    size_bytes: int
    verification: Verification | None
    """Measured when the engine was built, now or earlier."""
    not_verified: str | None
    """Why there is no verification; None when there is one."""


def build_engines(
    deployment: Deployment,
    *,
    roles: Sequence[Role] = ("generator", "verifier"),
    force: bool = False,
    verify: bool | None = None,
    say: Say,
) -> list[BuildReport]:
    """Build the engines of a deployment that are missing or stale; one report per role.

    `verify` None means: compare with transformers if that is installed and the model is small.
    Every checkpoint is checked before the first engine is built. Raises ConfigError,
    CheckpointError or BuildError, and then leaves the engine that it was building as it was.
    """
    _require_target(deployment)
    if verify and (missing := missing_packages()):
        raise BuildError(
            f"Verification was asked for, but {' and '.join(missing)} cannot be imported.",
            hint="pip install 'tts-toolkit[verify]'",
        )
    root = paths.built_dir(deployment.name)
    with disk_errors(root), build_lock(root, say):
        plans = [plan_engine(deployment, role) for role in roles]
        return [_build_if_stale(plan, force=force, verify=verify, say=say) for plan in plans]


def require_current(deployment: Deployment) -> dict[Role, EngineConfig]:
    """The configs of both engines, if they are what a build would make now.

    Quick: an untouched checkpoint is recognised by the sizes and times of its files. Raises
    BuildError naming each engine that is missing or stale and why, ConfigError when an engine
    cannot serve the deployment's lengths, CheckpointError when a checkpoint is gone or
    the verifier's tokenizer cannot make its labels or dialogue.
    """
    _require_target(deployment)
    configs: dict[Role, EngineConfig] = {}
    problems = []
    for role, spec in deployment.engines().items():
        folder = paths.engine_dir(deployment.name, role)
        state = inspect_engine(folder, spec.checkpoint, settings_for(deployment, role))
        if isinstance(spec, VerifierSpec):
            verifier_format(Tokenizer(spec.checkpoint), spec)
        if state.reasons:
            problems.append(
                f"The {role} engine of {deployment.name!r} is not ready: "
                f"{'; '.join(state.reasons)}."
            )
            continue
        configs[role] = read_engine_config(folder)
        check_length(deployment, role, configs[role].max_position_embeddings)
    if problems:
        raise BuildError("\n".join(problems), hint=f"Run: tts build-engines {deployment.name}")
    return configs


def _require_target(deployment: Deployment) -> None:
    if deployment.target != "openvino":
        raise BuildError(
            f"Deployment {deployment.name!r} has target {deployment.target}: TensorRT-LLM engines "
            "are built inside NVIDIA's container, and this version has no builder for them yet.",
            hint="Use a deployment with target openvino.",
        )


def _build_if_stale(plan: Plan, *, force: bool, verify: bool | None, say: Say) -> BuildReport:
    started = time.monotonic()
    recover(plan.folder)
    state = inspect_engine(plan.folder, plan.checkpoint.path, plan.settings)
    reasons = list(state.reasons)
    if not reasons and force:
        reasons.append("asked for")
    if not reasons and verify and state.manifest and state.manifest.verification is None:
        reasons.append("it was built without verification")
    if reasons or state.manifest is None:
        say(f"{plan.role}: building ({'; '.join(reasons)})")
        manifest = _build(plan, state.stamps, verify, say)
    else:
        manifest = state.manifest
        same_bytes = manifest.model_copy(
            update={"checkpoint": str(plan.checkpoint.path), "checkpoint_files": state.stamps}
        )
        if same_bytes != manifest:  # new times or place: noted, so that they are not hashed again
            write_record(plan.folder, MANIFEST_FILE, same_bytes)
        say(f"{plan.role}: unchanged")
    return BuildReport(
        role=plan.role,
        folder=plan.folder,
        status="built" if reasons else "unchanged",
        seconds=time.monotonic() - started,
        size_bytes=sum(manifest.engine_files.values()),
        verification=manifest.verification,
        not_verified=manifest.not_verified,
    )


def _build(plan: Plan, stamps: tuple[FileStamp, ...], verify: bool | None, say: Say) -> Manifest:
    precision, labels = plan.config.precision, plan.config.label_token_ids
    _require_space(plan)
    with staged(plan.folder) as folder:
        say(f"{plan.role}: exporting {plan.checkpoint.path.name} to OpenVINO in {precision}")
        save_model(export_model(plan.checkpoint, precision, labels), folder)
        write_record(folder, CONFIG_FILE, plan.config)
        verification = None
        not_verified = _why_not_verified(plan, verify)
        if not_verified:
            say(f"{plan.role}: not verified: {not_verified}")
        else:
            say(f"{plan.role}: comparing with transformers")
            verification = verify_engine(folder, plan.checkpoint, precision, labels)
        if stamp_files(plan.checkpoint.path, known=stamps) != list(stamps):
            raise BuildError(
                f"{plan.checkpoint.path} changed while it was being read.",
                hint="Build again when it is complete.",
            )
        manifest = new_manifest(
            folder, plan.checkpoint.path, stamps, plan.settings, verification, not_verified
        )
        write_record(folder, MANIFEST_FILE, manifest)
    return manifest


def _why_not_verified(plan: Plan, verify: bool | None) -> str | None:
    if verify is False:
        return "switched off"
    if verify:
        return None
    if missing := missing_packages():
        return f"{' and '.join(missing)} not installed (pip install 'tts-toolkit[verify]')"
    parameters = plan.checkpoint.num_parameters
    if parameters >= VERIFY_BY_DEFAULT_BELOW:
        return f"a model of {parameters / 1e6:.0f}M parameters is verified only when asked"
    return None


def _require_space(plan: Plan) -> None:
    needed = plan.checkpoint.num_parameters * _STORED_BYTES[plan.config.precision]
    free = shutil.disk_usage(plan.folder.parent).free
    if free < needed:
        raise BuildError(
            f"The {plan.role} engine needs about {needed / 1e9:.1f} GB in {plan.folder.parent}, "
            f"which has {free / 1e9:.1f} GB free.",
            hint="Free some space, or set TTS_HOME to a folder on a larger disk.",
        )
