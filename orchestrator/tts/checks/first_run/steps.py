"""The steps of a first run, in order: machine, deployment, engines, server, memory."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tts.build import paths
from tts.build.builder import build_engines
from tts.build.errors import CheckpointError, ConfigError, TtsError
from tts.build.findings import Finding
from tts.build.nvidia import NvidiaGpu, gpus
from tts.build.shown_text import Say
from tts.build.spec import Deployment, TensorRTSpec
from tts.build.tensorrt import contract
from tts.build.tensorrt.gpus import GIB, gpus_of
from tts.build.tensorrt.memory_plan import MemoryPlan, check_pools, plan_memory
from tts.serving.server.start import planned_command, start_server
from tts.serving.server.state import LOG
from tts.serving.server.triton_log import read_start_log

from .. import BEFORE_BUILD, has_errors, lint
from ..observation import Observation, State
from ..requirements import require_checkpoints
from .compare import compare_log, compare_memory
from .excerpts import telling_lines

AS_EXPECTED, DIFFERS, NOT_HERE = 0, 1, 3
"""Exit codes of a first run; 2 is a wrong option or file, as everywhere."""
LOG_BYTES = 4_000_000
"""Bytes of a log that are read from its beginning, where a start is recorded."""
_PATIENCE_S = 30.0


@dataclass
class FirstRun:
    """A first run as far as it has come."""

    deployment: Deployment
    observations: list[Observation] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    gpus: list[NvidiaGpu] = field(default_factory=list)
    plan: MemoryPlan | None = None
    findings: list[Finding] = field(default_factory=list)
    command: str = ""
    """The command with which a server would be started."""
    excerpts: dict[str, list[str]] = field(default_factory=dict)
    """Telling lines of each log, by the log's name."""

    @property
    def options(self) -> TensorRTSpec:
        """GPU and container."""
        assert self.deployment.tensorrt is not None  # require_first_run
        return self.deployment.tensorrt

    @property
    def blockers(self) -> list[str]:
        """What so far keeps the engines from being built and served here."""
        return [seen.what for seen in self.observations if seen.state in ("wrong", "not here")]

    @property
    def exit_code(self) -> int:
        """1 if anything is wrong, else 3 if not everything could be done here, else 0."""
        states = {seen.state for seen in self.observations}
        return DIFFERS if "wrong" in states else NOT_HERE if "not here" in states else AS_EXPECTED


def require_first_run(deployment: Deployment) -> None:
    """Refuse a deployment whose first run is nothing special; raises ConfigError."""
    if deployment.tensorrt is None:
        raise ConfigError(
            f"Deployment {deployment.name!r} has target {deployment.target}; a first run is for "
            "target tensorrt, where the machine and the memory plan have to prove right.",
            hint=f"Run: tts bench {deployment.named}",
        )


def take_steps(run: FirstRun, tell: Callable[[Observation], None], say: Say) -> None:
    """Take every step that this machine allows; `run` and `tell` get each result as it comes.

    Builds what is not built, starts the server, and stops it again. Nothing is raised for what a
    step finds wrong: later steps that need it say so.
    """
    run.versions = {
        "tts-toolkit": importlib.metadata.version("tts-toolkit"),
        "Python": platform.python_version(),
        "system": platform.platform(),
        "docker": _docker("version", "--format", "{{.Server.Version}}") or "none that answers",
    }
    run.gpus = gpus()
    with suppress(TtsError):  # what is wrong is told by the start itself
        run.command = str(planned_command(run.deployment))
    steps = (_gpus, _driver, _container, _checkpoints, _lint, _plan, _engines, _server)
    for step in steps:
        for seen in step(run, say):
            run.observations.append(seen)
            tell(seen)


def _gpus(run: FirstRun, say: Say) -> Iterator[Observation]:
    kind, devices = run.options.gpu, gpus_of(run.deployment)
    wanted = contract.compute_capability(kind)
    numbers = ", ".join(map(str, devices))
    expected = f"GPU {numbers} of compute capability {wanted} ({kind})"
    state: State = "ok"
    found = ", ".join(f"GPU {gpu.index}: {gpu.name} ({gpu.capability})" for gpu in run.gpus)
    advice = ""
    capabilities = {gpu.index: gpu.capability for gpu in run.gpus}
    if not run.gpus:
        state, found = "not here", "no NVIDIA GPU: nvidia-smi is not there, or finds none"
        advice = "Run this on the machine with the GPU. What needs none is looked at below."
    elif missing := [device for device in devices if device not in capabilities]:
        state, advice = "wrong", f"There is no GPU {missing[0]}: set tensorrt.gpus of the engines."
    elif any(capabilities[device] != wanted for device in devices):
        state = "wrong"
        advice = "Set tensorrt.gpu to the kind of this machine, or take another deployment."
    yield Observation("GPU", state, found, advice, expected)


def _driver(run: FirstRun, say: Say) -> Iterator[Observation]:
    wanted = contract.containers()[run.options.container].driver
    expected = f"{wanted} or later"
    if not run.gpus:
        yield Observation("driver", "not here", "none", "", expected)
    elif _major(found := run.gpus[0].driver) >= _major(wanted):
        yield Observation("driver", "ok", found, "", expected)
    else:
        advice = "On data-centre GPUs CUDA's forward compatibility may do; else update the driver."
        yield Observation("driver", "note", found, advice, expected)


def _container(run: FirstRun, say: Say) -> Iterator[Observation]:
    image = contract.container_image(run.options.container)
    if tag := os.environ.get(contract.version_variable()):
        known = contract.containers()
        state: State = "ok" if tag in known else "wrong"
        expected = f"inside one of {', '.join(known)}"
        yield Observation("container", state, f"inside {tag}", "", expected)
        return
    expected = f"docker, with {image}"
    version = _docker("version", "--format", "{{.Server.Version}}")
    if version is None:
        state = "wrong" if run.gpus else "not here"
        found = "docker is not installed, or its daemon does not answer this user"
        advice = "Install docker and the NVIDIA Container Toolkit: docs/guides/gpu.md, step 1."
        yield Observation("container", state, found, advice, expected)
    elif _docker("image", "inspect", "--format", "{{.Id}}", image) is None:
        advice = f"The build downloads it (14 GB). To see it come: docker pull {image}"
        yield Observation("container", "note", f"docker {version} without it", advice, expected)
    else:
        yield Observation("container", "ok", f"docker {version} has it", "", expected)


def _checkpoints(run: FirstRun, say: Say) -> Iterator[Observation]:
    expected = "both checkpoints"
    engines = run.deployment.engines()
    missing = [s for s in engines.values() if not (s.checkpoint / "config.json").is_file()]
    names = " and ".join(dict.fromkeys(s.checkpoint.name for s in missing or engines.values()))
    if not missing:
        yield Observation("checkpoints", "ok", names, "", expected)
        return
    advice = "Download them, or set `checkpoint` to where they are."
    try:
        require_checkpoints(run.deployment)
    except CheckpointError as error:
        advice = error.hint or advice
    state: State = "wrong" if run.gpus else "not here"
    yield Observation("checkpoints", state, f"without {names}", advice, expected)


def _lint(run: FirstRun, say: Say) -> Iterator[Observation]:
    run.findings = lint(run.deployment, BEFORE_BUILD)
    count = [finding.severity for finding in run.findings].count
    found = f"{count('error')} errors, {count('warning')} warnings, {count('note')} not checked"
    state: State = "wrong" if has_errors(run.findings) else "note" if count("warning") else "ok"
    advice = "" if state == "ok" else f"tts lint {run.deployment.named} explains each."
    yield Observation("lint", state, found, advice, "no errors")


def _plan(run: FirstRun, say: Say) -> Iterator[Observation]:
    expected = "both engines and the pools of the file fit"
    try:
        run.plan = plan_memory(run.deployment)
        check_pools(run.deployment)
    except TtsError as error:
        yield _refused("memory plan", error, expected)
        return
    found = f"fits, with {run.plan.headroom / GIB:.2f} GiB of room for what it does not know"
    yield Observation("memory plan", "ok", found, "", expected)


def _engines(run: FirstRun, say: Say) -> Iterator[Observation]:
    expected = "built, and read back as asked for"
    if run.blockers:
        yield _not_tried("engines", expected, run)
        return
    try:
        reports = build_engines(run.deployment, say=say)
    except TtsError as error:
        yield _refused("engines", error, expected)
    else:
        found = ", ".join(
            f"{report.role} {report.status} ({report.size_bytes / 1e9:.2f} GB, "
            f"{report.seconds:.0f} s)"
            for report in reports
        )
        yield Observation("engines", "ok", found, "", expected)
    finally:
        for role in run.deployment.engines():
            log = paths.built_dir(run.deployment.name) / f"{role}-build.log"
            run.excerpts[log.name] = telling_lines(_lines(log))


def _server(run: FirstRun, say: Say) -> Iterator[Observation]:
    expected = "loaded, and both models answer a request"
    if run.blockers or run.plan is None:
        yield _not_tried("server", expected, run)
        yield _not_tried("memory as planned", "the log of the start says what the plan says", run)
        return
    log = paths.server_dir(run.deployment.name) / LOG
    before = {gpu.index: gpu.used for gpu in gpus()}
    earlier = _identity(log)
    try:
        with start_server(run.deployment, say=say):
            seen = read_start_log(_lines(log))
            used = {gpu.index: gpu.used for gpu in gpus()}
    except TtsError as error:
        yield _refused("server", error, expected)
        if _identity(log) != earlier and (seen := read_start_log(_lines(log))):
            yield from compare_log(run.deployment, run.plan, seen)
    else:
        yield Observation("server", "ok", "both models answer", "", expected)
        yield from compare_log(run.deployment, run.plan, seen)
        yield from compare_memory(run.deployment, run.plan, before, used)
    finally:
        if _identity(log) != earlier:  # else it is of an earlier start
            run.excerpts[log.name] = telling_lines(_lines(log))


def _refused(what: str, error: TtsError, expected: str) -> Observation:
    return Observation(what, "wrong", error.message, error.hint or "", expected)


def _not_tried(what: str, expected: str, run: FirstRun) -> Observation:
    found = f"not tried: see {', '.join(run.blockers)}"
    return Observation(what, "not here", found, "", expected)


def _docker(*arguments: str) -> str | None:
    """What docker answers; None if it is not there, fails or takes too long."""
    if (program := shutil.which("docker")) is None:
        return None
    try:
        done = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _lines(log: Path) -> Iterable[str]:
    try:
        with log.open("rb") as file:
            return file.read(LOG_BYTES).decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _identity(log: Path) -> tuple[int, int] | None:
    """What tells the log of this start from that of an earlier one."""
    try:
        found = log.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _major(version: str) -> int:
    number = version.partition(".")[0]
    return int(number) if number.isdecimal() else 0
