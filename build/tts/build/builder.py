"""Building a deployment's engines: only those that have changed, each completely or not at all.

There is one builder at a time. An engine's folder `x` is made as `.x.new`; then `x` becomes
`.x.old`, `.x.new` becomes `x`, `.x.old` goes. A crash leaves one of these steps undone, and
`recover` finishes or undoes it on the next run. To add a target is to write its module, with the
functions of `TargetModule`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tts.base import paths
from tts.base.errors import BuildError, ConfigError
from tts.base.shown_text import Say

from .build_plan import BuildPlan, VerificationOutcome, check_length
from .checkpoint import FileStamp, stamp_files
from .inputs import EngineInputs, Inputs, judged_by
from .manifest import (
    MANIFEST_FILE,
    BuildSettings,
    EngineConfig,
    EngineState,
    Verification,
    changed_content,
    inspect_engine,
    new_manifest,
    write_record,
)
from .spec import Deployment, Role, Target

QUICK_BYTES = 50_000_000
"""Both checkpoints of a deployment up to this size are exported and compared within seconds."""
_SHARED = "verifier: nothing to build, the generator's engine is its own"


@dataclass(frozen=True)
class BuildReport:
    """The result of building one engine."""

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
    inputs: Inputs | None = None,
    roles: Sequence[Role] | None = None,
    force: bool = False,
    verify: bool | None = None,
    say: Say,
) -> list[BuildReport]:
    """Build the engines of a deployment that are missing or stale; one report for each.

    `verify` None: compare with transformers if that is installed and the model is small (target
    openvino). Every checkpoint, and the machine, is checked before the first engine is built.
    Raises ConfigError, CheckpointError or BuildError, and leaves that engine as it was.
    """
    for role, remote in deployment.remotes().items():
        say(f"{role}: nothing to build, it runs at {', '.join(remote.url)}")
    if deployment.shares_engine:
        say(_SHARED)
    roles = tuple(deployment.engines()) if roles is None else roles
    if not roles:
        return []
    target = target_module(deployment.target)
    root = paths.built_dir(deployment.name)
    with disk_errors(root), build_lock(root, say):
        inputs = inputs.fresh() if inputs else Inputs(deployment)
        plans = [target.plan_engine(inputs.engines[role]) for role in roles]
        for plan in plans:
            if plan.role == "verifier":
                say(f"verifier: judges with {judged_by(plan.inputs.shape, plan.spec)}")
        states = [_inspect(plan, force=force, verify=verify) for plan in plans]
        engines = list(zip(plans, states, strict=True))
        if stale := [plan for plan, state in engines if state.reasons]:
            target.prepare(stale, verify)
        return [_build_if_stale(target, plan, state, verify, say) for plan, state in engines]


def preview_build(deployment: Deployment, inputs: Inputs | None = None) -> list[str]:
    """The steps of a build, as lines to print; nothing is built, and no GPU is needed."""
    lines = [
        f"# {role}: nothing to build, it runs at {', '.join(remote.url)}"
        for role, remote in deployment.remotes().items()
    ]
    if deployment.shares_engine:
        lines.append(f"# {_SHARED}")
    if not deployment.engines():
        return lines
    target = target_module(deployment.target)
    engines = (inputs or Inputs(deployment)).engines.values()
    return lines + [line for engine in engines for line in target.preview(engine)]


def quick_to_build(deployment: Deployment) -> list[Role]:
    """The engines that have not been built, where building all of them takes seconds."""
    engines = deployment.engines()
    checkpoints = [spec.checkpoint for spec in engines.values()]
    if deployment.target != "openvino" or not all(folder.is_dir() for folder in checkpoints):
        return []
    files = [file for folder in checkpoints for file in folder.iterdir()]
    if sum(file.stat().st_size for file in files) > QUICK_BYTES:
        return []
    return [role for role in engines if not paths.engine_dir(deployment.name, role).exists()]


def build_if_quick(deployment: Deployment, say: Say) -> None:
    """Build the engines that have not been built if that takes seconds; `say` gets a line then.

    Engines that no longer fit are left to `require_current`, which says why. Raises what
    `build_engines` raises.
    """
    if missing := quick_to_build(deployment):
        say(
            f"Building the {' and '.join(missing)} of {deployment.argument}, which takes seconds "
            "and is needed once"
        )
        build_engines(deployment, roles=missing, say=lambda line: None)


def require_current(deployment: Deployment, *, anew: bool = False) -> dict[Role, EngineConfig]:
    """The configs of the compiled engines, if they are up to date and as they were built.

    Quick: an untouched checkpoint is recognised by the sizes and times of its files; those of an
    engine are read once after each boot, with `anew` in any case. Raises BuildError for what is
    missing or stale, ConfigError for too long sequences, CheckpointError for a checkpoint.
    """
    if not deployment.engines():
        return {}
    target = target_module(deployment.target)
    configs: dict[Role, EngineConfig] = {}
    problems = []
    for role, inputs in Inputs(deployment).engines.items():
        folder = paths.engine_dir(deployment.name, role)
        state = _inspect_all(folder, inputs.folder, target.settings_for(inputs), anew=anew)
        inputs.require_dialogue()
        if state.reasons:
            problems.append(
                f"The {role} engine of {deployment.name!r} is not ready: "
                f"{'; '.join(state.reasons)}."
            )
            continue
        configs[role] = target.engine_config(inputs, folder)
        check_length(inputs, configs[role].max_position_embeddings)
    if problems:
        raise BuildError("\n".join(problems), hint=f"Run: tts build-engines {deployment.argument}")
    return configs


def _inspect_all(
    folder: Path, checkpoint: Path, settings: BuildSettings, *, anew: bool
) -> EngineState:
    """The state of `inspect_engine`, once the content of the engine's files is compared, too."""
    state = inspect_engine(folder, checkpoint, settings)
    if state.manifest is None or state.reasons:
        return state
    try:
        changed = changed_content(folder, state.manifest, anew=anew)
        reasons = [f"{name} is not the file that was built, by its hash" for name in changed]
    except OSError as error:
        reasons = [f"it cannot be read: {error}"]
    return state._replace(reasons=tuple(reasons))


def _inspect(plan: BuildPlan, *, force: bool, verify: bool | None) -> EngineState:
    recover(plan.folder)
    state = _inspect_all(plan.folder, plan.spec.checkpoint, plan.settings, anew=True)
    if not state.reasons and force:
        return state._replace(reasons=("asked for",))
    if not state.reasons and verify and state.manifest and state.manifest.verification is None:
        return state._replace(reasons=("it was built without verification",))
    return state


def _build_if_stale(
    target: TargetModule, plan: BuildPlan, state: EngineState, verify: bool | None, say: Say
) -> BuildReport:
    started, checkpoint = time.monotonic(), plan.spec.checkpoint
    if state.reasons or state.manifest is None:
        say(f"{plan.role}: building ({'; '.join(state.reasons)})")
        with staged(plan.folder) as folder:
            checked = target.make_engine(plan, state.stamps, folder, verify, say)
            if stamp_files(checkpoint, state.stamps) != list(state.stamps):
                raise BuildError(
                    f"{checkpoint} changed while it was being read.",
                    hint="Build again when it is complete.",
                )
            manifest = new_manifest(folder, checkpoint, state.stamps, plan.settings, *checked)
            write_record(folder, MANIFEST_FILE, manifest)
    else:
        manifest = state.manifest
        same_bytes = manifest.model_copy(
            update={"checkpoint": str(checkpoint), "checkpoint_files": state.stamps}
        )
        if same_bytes != manifest:  # files moved or touched: recorded, to not be hashed again
            write_record(plan.folder, MANIFEST_FILE, same_bytes)
        say(f"{plan.role}: unchanged")
    return BuildReport(
        role=plan.role,
        folder=plan.folder,
        status="built" if state.reasons else "unchanged",
        seconds=time.monotonic() - started,
        size_bytes=sum(manifest.engine_files.values()),
        verification=manifest.verification,
        not_verified=manifest.not_verified,
    )


class TargetModule(Protocol):
    """The functions of a target's module."""

    def settings_for(self, inputs: EngineInputs) -> BuildSettings:
        """What an engine would be built with now."""

    def plan_engine(self, inputs: EngineInputs) -> BuildPlan:
        """Check everything that can be known without building."""

    def engine_config(self, inputs: EngineInputs, folder: Path) -> EngineConfig:
        """The configuration of the engine in `folder`, which is up to date."""

    def prepare(self, plans: Sequence[BuildPlan], verify: bool | None) -> None:
        """Before the first engine is built, refuse whatever would stop any of them."""

    def make_engine(
        self,
        plan: BuildPlan,
        stamps: Sequence[FileStamp],
        folder: Path,
        verify: bool | None,
        say: Say,
    ) -> VerificationOutcome:
        """Build the engine in `folder`, which is empty and moved into place afterwards."""

    def preview(self, inputs: EngineInputs) -> list[str]:
        """What building the engine would do, as lines to print."""


def target_module(target: Target) -> TargetModule:
    """The module of a target, imported alone; raises ConfigError for one that builds nothing."""
    match target:
        case "openvino":
            from .openvino import target as openvino_target

            return openvino_target
        case "tensorrt":
            from .tensorrt import target as tensorrt_target

            return tensorrt_target
        case _:
            raise ConfigError(f"Target {target} builds nothing.")


@contextmanager
def build_lock(folder: Path, say: Say) -> Iterator[None]:
    """Hold the build lock of `folder`; if another builder has it, say so and wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".build.lock").open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            say(f"Waiting for another build in {folder} (process {file.read() or 'unknown'}).")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """An empty folder that replaces `folder` when the block succeeds, and is removed if not."""
    new, old = _new_and_old(folder)
    recover(folder)
    new.mkdir()
    try:
        yield new
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except BaseException:
        recover(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def recover(folder: Path) -> None:
    """Bring `folder` back to its last complete state and remove what a killed build left."""
    new, old = _new_and_old(folder)
    if old.exists() and not folder.exists():
        old.rename(folder)
    for leftover in (new, old):
        if leftover.exists():
            shutil.rmtree(leftover)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError into a BuildError that says what is wrong with the disk."""
    try:
        yield
    except OSError as error:
        what = f"Cannot write engines to {folder}: {error}"
        hint = "Check the disk, or set TTS_HOME to another folder."
        if error.errno == errno.ENOSPC:
            what = f"The disk that holds {folder} is full."
            hint = "Free some space, or set TTS_HOME to a folder on a larger disk."
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            what = f"There is no permission to write {error.filename or folder}."
            hint = "Set TTS_HOME to a folder that you may write."
        raise BuildError(what, hint=hint) from error


def _new_and_old(folder: Path) -> tuple[Path, Path]:
    return folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
