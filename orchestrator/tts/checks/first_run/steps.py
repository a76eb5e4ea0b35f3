"""The steps of a first run, in order: machine, deployment, engines, server, memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tts.build import paths
from tts.build.builder import build_engines
from tts.build.errors import CheckpointError, ConfigError, TtsError
from tts.build.nvidia import NvidiaGpu, gpus
from tts.build.spec import Deployment, TensorRTSpec
from tts.build.tensorrt import contract
from tts.build.tensorrt.gpus import GIB, gpus_of
from tts.build.tensorrt.memory_plan import MemoryPlan, check_pools, plan_memory
from tts.serving.repository.check import Finding
from tts.serving.server.start import planned_command, start_server
from tts.serving.server.state import LOG
from tts.serving.server.triton_log import read_start_log

from .. import BEFORE_BUILD, has_errors, lint
from ..requirements import require_checkpoints
from . import machine
from .excerpts import telling_lines
from .outcomes import Outcome, State, compare_log, compare_memory

LOG_BYTES = 4_000_000
"""Bytes of a log that are read from its beginning, where a start is recorded."""
_IMPORT = "import tensorrt_llm"
Say = Callable[[str], None]


@dataclass
class FirstRun:
    """A first run as far as it has come."""

    deployment: Deployment
    outcomes: list[Outcome] = field(default_factory=list)
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
    def in_the_way(self) -> list[str]:
        """What so far keeps the engines from being built and served here."""
        return [seen.what for seen in self.outcomes if seen.state in ("wrong", "not here")]


def require_first_run(deployment: Deployment) -> None:
    """Refuse a deployment whose first run is nothing special; raises ConfigError."""
    if deployment.tensorrt is None:
        raise ConfigError(
            f"Deployment {deployment.name!r} has target {deployment.target}; a first run is for "
            "target tensorrt, where the machine and the memory plan have to prove right.",
            hint=f"Run: tts bench {deployment.named}",
        )


def take_steps(run: FirstRun, tell: Callable[[Outcome], None], say: Say) -> None:
    """Take every step that this machine allows; `run` and `tell` get each outcome as it comes.

    Builds what is not built, starts the server, and stops it again. Nothing is raised for what a
    step finds wrong: later steps that need it are outcomes that say so.
    """
    run.versions = machine.versions()
    run.gpus = gpus()
    with suppress(TtsError):  # what is wrong is told by the start itself
        run.command = str(planned_command(run.deployment))
    steps = (_gpus, _driver, _container, _checkpoints, _lint, _plan, _engines, _server)
    for step in steps:
        for outcome in step(run, say):
            run.outcomes.append(outcome)
            tell(outcome)


def _gpus(run: FirstRun, say: Say) -> Iterator[Outcome]:
    wanted = contract.compute_capability(run.options.gpu)
    devices = gpus_of(run.deployment)
    expected = (
        f"GPU {', '.join(map(str, devices))} of compute capability {wanted} ({run.options.gpu})"
    )
    if not run.gpus:
        yield Outcome(
            "GPU",
            "not here",
            expected,
            "no NVIDIA GPU: nvidia-smi is not there, or finds none",
            "Run this on the machine with the GPU. What needs none is looked at below.",
        )
        return
    found = ", ".join(f"GPU {gpu.index}: {gpu.name} ({gpu.capability})" for gpu in run.gpus)
    capabilities = {gpu.index: gpu.capability for gpu in run.gpus}
    if missing := [device for device in devices if device not in capabilities]:
        advice = f"There is no GPU {missing[0]}: set tensorrt.gpus of the engines."
        yield Outcome("GPU", "wrong", expected, found, advice)
    elif any(capabilities[device] != wanted for device in devices):
        advice = "Set tensorrt.gpu to the kind of this machine, or take another deployment."
        yield Outcome("GPU", "wrong", expected, found, advice)
    else:
        yield Outcome("GPU", "ok", expected, found)


def _driver(run: FirstRun, say: Say) -> Iterator[Outcome]:
    wanted = contract.containers()[run.options.container].driver
    expected = f"{wanted} or later"
    if not run.gpus:
        yield Outcome("driver", "not here", expected, "none")
        return
    found = run.gpus[0].driver
    if _major(found) >= _major(wanted):
        yield Outcome("driver", "ok", expected, found)
        return
    advice = "On data-centre GPUs CUDA's forward compatibility may do; else update the driver."
    yield Outcome("driver", "note", expected, found, advice)


def _container(run: FirstRun, say: Say) -> Iterator[Outcome]:
    image = contract.container_image(run.options.container)
    if tag := os.environ.get(contract.version_variable()):
        known = ", ".join(contract.containers())
        state: State = "ok" if tag in contract.containers() else "wrong"
        yield Outcome("container", state, f"inside one of {known}", f"inside {tag}")
        return
    expected = f"docker, with {image}"
    version = machine.docker()
    if version is None:
        yield Outcome(
            "container",
            "wrong" if run.gpus else "not here",
            expected,
            "docker is not installed, or its daemon does not answer this user",
            "Install docker and the NVIDIA Container Toolkit: docs/guides/gpu.md, step 1.",
        )
    elif not machine.has_image(image):
        advice = f"The build downloads it (14 GB). To see it come: docker pull {image}"
        yield Outcome("container", "note", expected, f"docker {version} without it", advice)
    else:
        yield Outcome("container", "ok", expected, f"docker {version} has it")
        yield from _imports(run, image)


def _imports(run: FirstRun, image: str) -> Iterator[Outcome]:
    """Whether the container's Python packages go together; its guide warns that some do not."""
    expected = "TensorRT-LLM can be imported in it"
    said = machine.said_in(image, ("python3", "-c", _IMPORT))
    if said is None or "PartReasoningText" not in said:
        return  # any other failure is the build's or the start's to explain
    advice = "Set tensorrt.container to 26.06, which holds the same version."
    found = "ImportError: cannot import name 'PartReasoningText' (the package openai)"
    yield Outcome("container's packages", "wrong", expected, found, advice)


def _checkpoints(run: FirstRun, say: Say) -> Iterator[Outcome]:
    expected = "both checkpoints"
    engines = run.deployment.engines()
    missing = [s for s in engines.values() if not (s.checkpoint / "config.json").is_file()]
    if not missing:
        found = " and ".join(spec.checkpoint.name for spec in engines.values())
        yield Outcome("checkpoints", "ok", expected, found)
        return
    advice = "Download them, or set `checkpoint` to where they are."
    try:
        require_checkpoints(run.deployment)
    except CheckpointError as error:
        advice = error.hint or advice
    names = " and ".join(dict.fromkeys(spec.checkpoint.name for spec in missing))
    state: State = "wrong" if run.gpus else "not here"
    yield Outcome("checkpoints", state, expected, f"without {names}", advice)


def _lint(run: FirstRun, say: Say) -> Iterator[Outcome]:
    run.findings = lint(run.deployment, BEFORE_BUILD)
    counts = {
        severity: sum(finding.severity == severity for finding in run.findings)
        for severity in ("error", "warning", "note")
    }
    found = f"{counts['error']} errors, {counts['warning']} warnings, {counts['note']} not checked"
    state: State = "wrong" if has_errors(run.findings) else "note" if counts["warning"] else "ok"
    advice = "" if state == "ok" else f"tts lint {run.deployment.named} explains each."
    yield Outcome("lint", state, "no errors", found, advice)


def _plan(run: FirstRun, say: Say) -> Iterator[Outcome]:
    expected = "both engines and the pools of the file fit"
    try:
        run.plan = plan_memory(run.deployment)
        check_pools(run.deployment)
    except TtsError as error:
        yield Outcome("memory plan", "wrong", expected, error.message, error.hint or "")
        return
    found = f"fits, with {run.plan.headroom / GIB:.2f} GiB of room for what it does not know"
    yield Outcome("memory plan", "ok", expected, found)


def _engines(run: FirstRun, say: Say) -> Iterator[Outcome]:
    expected = "built, and read back as asked for"
    if run.in_the_way:
        yield _not_tried("engines", expected, run)
        return
    try:
        reports = build_engines(run.deployment, say=say)
    except TtsError as error:
        yield Outcome("engines", "wrong", expected, error.message, error.hint or "")
    else:
        found = ", ".join(
            f"{report.role} {report.status} ({report.size_bytes / 1e9:.2f} GB, "
            f"{report.seconds:.0f} s)"
            for report in reports
        )
        yield Outcome("engines", "ok", expected, found)
    finally:
        for role in run.deployment.engines():
            log = paths.built_dir(run.deployment.name) / f"{role}-build.log"
            run.excerpts[log.name] = telling_lines(_lines(log))


def _server(run: FirstRun, say: Say) -> Iterator[Outcome]:
    expected = "loaded, and both models answer a request"
    if run.in_the_way or run.plan is None:
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
        yield Outcome("server", "wrong", expected, error.message, error.hint or "")
        if _identity(log) != earlier and (seen := read_start_log(_lines(log))):
            yield from compare_log(run.deployment, run.plan, seen)
    else:
        yield Outcome("server", "ok", expected, "both models answer")
        yield from compare_log(run.deployment, run.plan, seen)
        yield from compare_memory(run.deployment, run.plan, before, used)
    finally:
        if _identity(log) != earlier:  # else it is of an earlier start
            run.excerpts[log.name] = telling_lines(_lines(log))


def _not_tried(what: str, expected: str, run: FirstRun) -> Outcome:
    return Outcome(what, "not here", expected, f"not tried: see {', '.join(run.in_the_way)}")


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
