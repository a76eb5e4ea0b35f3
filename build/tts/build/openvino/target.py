"""Target openvino: engines for this machine's CPU, exported from the checkpoint in process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import JsonValue

from tts.base import paths
from tts.base.errors import BuildError
from tts.base.extras import how_to_install

from ..build_plan import BuildPlan, VerificationOutcome, check_length, new_plan
from ..checkpoint import FileStamp
from ..inputs import EngineInputs
from ..manifest import CONFIG_FILE, BuildSettings, EngineConfig, read_engine_config, write_record
from ..spec import VerifierSpec
from .memory import STORED_BYTES
from .runtime import openvino_version, require_precision
from .transformer import EXPORTER_VERSIONS, SCORE_LOGITS, ScoreColumns, Transformer, save_model
from .verify import missing_packages, verify_engine

VERIFY_BY_DEFAULT_BELOW = 200_000_000
"""Parameters. A larger model is verified only when asked: transformers needs it in fp32 as well."""


def settings_for(inputs: EngineInputs) -> BuildSettings:
    """The settings that the engine would be built with now."""
    spec = inputs.spec
    settings: BuildSettings = {
        "target": inputs.deployment.target,
        "role": inputs.role,
        "precision": spec.precision,
        "labels": _labels(inputs),
        "exporter_version": EXPORTER_VERSIONS[spec.precision],
        "openvino_version": openvino_version(),
    }
    if isinstance(spec, VerifierSpec) and spec.head:
        settings["head"] = spec.head
    return settings


def _labels(inputs: EngineInputs) -> JsonValue:
    """The labels that scores are read at, with their weights; token ids where a critique asks."""
    if inputs.judge is None:
        return None
    judge = inputs.judge.verifier
    weights = inputs.label_weights if judge.facts.writes else judge.labels
    return [[label, weight] for label, weight in weights.items()] or None


def score_columns(inputs: EngineInputs) -> ScoreColumns | None:
    """The columns that the engine's scores are made of; None without labels, or of a head."""
    labels = inputs.label_weights
    if not labels or inputs.shape.head:
        return None
    return ScoreColumns(tuple(labels), tuple(labels.values()), inputs.spec.writes)


def plan_engine(inputs: EngineInputs) -> BuildPlan:
    """Check everything that can be known without building; raises CheckpointError, ConfigError."""
    require_precision(inputs.role, inputs.spec.precision)
    inputs.require_weights()
    check_length(inputs)
    columns = None
    if inputs.label_weights:
        columns = SCORE_LOGITS + (inputs.shape.vocab_size if inputs.spec.writes else 0)
    return new_plan(inputs, settings_for(inputs), columns)


def engine_config(inputs: EngineInputs, folder: Path) -> EngineConfig:
    """The configuration of the engine in `folder`."""
    return read_engine_config(folder)


def prepare(plans: Sequence[BuildPlan], verify: bool | None) -> None:
    """Refuse a verification that cannot be done, before anything is built."""
    if verify and (missing := missing_packages()):
        raise BuildError(
            f"Verification was asked for, but {' and '.join(missing)} cannot be imported.",
            hint=f"Install them: {how_to_install('verify')}\nA CPU build of torch is enough: "
            "docs/start/install.md.",
        )


def make_engine(
    plan: BuildPlan,
    stamps: Sequence[FileStamp],
    folder: Path,
    verify: bool | None,
    say: Callable[[str], None],
) -> VerificationOutcome:
    """Export the checkpoint to `folder`, and compare it with transformers."""
    checkpoint = plan.inputs.checkpoint
    precision, score = plan.config.precision, score_columns(plan.inputs)
    needed = checkpoint.num_parameters * STORED_BYTES[precision]
    free = shutil.disk_usage(plan.folder.parent).free
    if free < needed:
        raise BuildError(
            f"The {plan.role} engine needs about {needed / 1e6:,.1f} MB in {plan.folder.parent}, "
            f"which has {free / 1e6:,.1f} MB free.",
            hint="Free some space, or set TTS_HOME to a folder on a larger disk.",
        )
    say(f"{plan.role}: exporting {checkpoint.path.name} to OpenVINO in {precision}")
    save_model(Transformer(checkpoint, precision, score).model(), folder)
    write_record(folder, CONFIG_FILE, plan.config)
    if not_verified := _why_not_verified(plan, verify):
        return VerificationOutcome(None, not_verified)
    say(f"{plan.role}: comparing with transformers")
    return VerificationOutcome(verify_engine(folder, checkpoint, precision, score), None)


def preview(inputs: EngineInputs) -> list[str]:
    """The export that would happen; it runs in this process, so there is no command to paste."""
    role, spec = inputs.role, inputs.spec
    folder = paths.engine_dir(inputs.deployment.name, role)
    return [f"# {role}: export {spec.checkpoint} to OpenVINO in {spec.precision}, as {folder}"]


def _why_not_verified(plan: BuildPlan, verify: bool | None) -> str | None:
    if verify is False:
        return "switched off"
    if verify:
        return None
    if missing := missing_packages():
        return (
            f"{' and '.join(missing)} not installed; install them, then run "
            f"tts build-engines {plan.deployment.argument} --verify"
        )
    parameters = plan.inputs.checkpoint.num_parameters
    if parameters >= VERIFY_BY_DEFAULT_BELOW:
        return f"a model of {parameters / 1e6:.0f}M parameters is verified only when asked"
    return None
