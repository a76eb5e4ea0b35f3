"""Running the steps of a build: where, with a log, and stopped cleanly when interrupted.

A step runs in a container of its own, or directly if we are inside one.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from tts.base.errors import BuildError
from tts.base.shown_text import Say

from ..failures import NO_MPI, find_cause
from ..nvidia import require_gpus
from . import contract
from .commands import BuildStep, Workspace
from .docker import docker_run, with_link_targets


def docker_command(step: BuildStep, work: Workspace, tag: str, name: str) -> tuple[str, ...]:
    """`docker run` of a step, on its GPUs only, and with network only if it needs it."""
    devices = ",".join(map(str, step.devices))
    return docker_run(
        name,
        contract.container_image(tag),
        step.command,
        # one field of a CSV line, in which docker would take each further device for an option
        gpus=f'"device={devices}"' if len(step.devices) > 1 else f"device={devices}",
        options=("--network=none",) if step.isolated and not step.network else (),
        reads=with_link_targets(step.reads),
        writes=dict.fromkeys(step.writes),
        variables={"HOME": str(work.home)} | ({} if step.network else {"HF_HUB_OFFLINE": "1"}),
    )


def direct_command(step: BuildStep, python: str = "python3") -> tuple[str, ...]:
    """A step inside the container, with the devices numbered as nvidia-smi numbers them."""
    program, *arguments = step.command
    return (
        "env",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        f"CUDA_VISIBLE_DEVICES={','.join(map(str, step.devices))}",
        *(() if step.network else ("HF_HUB_OFFLINE=1",)),
        python if program == "python3" else program,
        *arguments,
    )


def shell_text(command: Sequence[str]) -> str:
    """A command to paste into a shell: quoted, one option or program to a line."""
    lines: list[list[str]] = [[]]
    for word in command:
        if word.startswith(("--", "nvcr.io/")) and lines[-1]:
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return " \\\n    ".join(" ".join(line) for line in lines)


_SHOWN = ("[TRT-LLM]", "tts: ")
"""Lines of the log with one of these are shown as progress."""
_PATIENCE_S = 20.0  # for a command to end after SIGTERM


@dataclass(frozen=True)
class Toolchain:
    """Where commands run: in the container we are in, or in containers that docker starts."""

    container: str
    """Tag of the container."""
    inside: bool
    python: str = "python3"

    def command(self, step: BuildStep, work: Workspace) -> tuple[str, ...]:
        """The full command of a step."""
        if self.inside:
            return direct_command(step, self.python)
        return docker_command(step, work, self.container, container_name(step, work))


def find_toolchain(container: str) -> Toolchain:
    """The toolchain for a deployment's container; looks at the environment only."""
    inside = os.environ.get(contract.version_variable())
    if not inside:
        return Toolchain(container, inside=False)
    # where trtllm-build is, TensorRT-LLM's Python is beside it; python3 may be a user's own
    program = shutil.which("trtllm-build")
    beside = Path(program).with_name("python3") if program else None
    python = str(beside) if beside and beside.exists() else "python3"
    return Toolchain(inside, inside=True, python=python)


def require_machine(toolchain: Toolchain, gpu: str, devices: Iterable[int]) -> None:
    """Raise BuildError if this machine cannot build, before any time is spent."""
    if toolchain.inside:
        if toolchain.container not in contract.containers():
            raise BuildError(
                f"This is Triton container {toolchain.container}; TensorRT-LLM "
                f"{contract.TENSORRT_LLM} is in {', '.join(contract.containers())} only.",
                hint=f"Use {contract.container_image(max(contract.containers()))}.",
            )
        if shutil.which("trtllm-build") is None:
            raise BuildError(
                f"This Triton container {toolchain.container} has no trtllm-build.",
                hint=f"Use {contract.container_image(toolchain.container)}.",
            )
    elif shutil.which("docker") is None:
        image = contract.container_image(toolchain.container)
        raise BuildError(
            "TensorRT-LLM engines are built in NVIDIA's container, and docker is not installed.",
            hint="Install docker and the NVIDIA Container Toolkit, or run this command inside "
            f"{image}.",
        )
    _require_gpus(gpu, sorted(set(devices)))


def run_step(
    toolchain: Toolchain, step: BuildStep, work: Workspace, *, log: Path, say: Say, what: str
) -> BuildStep:
    """Run one step to its end, appending its output to the log; returns it as it went well.

    A step in a container without a network is run once more with docker's own if MPI did not start.
    Raises BuildError with the cause when it fails. When interrupted, it stops the step first.
    """
    status, lines = _attempt(toolchain, step, work, log, say)
    shut_off = not toolchain.inside and step.isolated and not step.network
    if status and shut_off and any(map(NO_MPI.search, lines)):
        note = (
            "MPI did not start in a container without a network: once more with docker's default "
            "network, and HF_HUB_OFFLINE=1"
        )
        with log.open("a", encoding="utf-8") as file:
            print("# tts:", note, file=file)
        say(note)
        step = replace(step, isolated=False)
        status, lines = _attempt(toolchain, step, work, log, say)
    if status == 0:
        return step
    cause = find_cause(lines, status)
    raise BuildError(
        f"{what} failed ({step.name}). {cause.sentence}\n  {cause.line}\nThe whole log: {log}",
        hint=cause.hint,
    )


def container_name(step: BuildStep, work: Workspace) -> str:
    """A step's name for docker, which refuses to run two of one name at a time."""
    return "-".join(
        ("tts", work.root.parent.name, work.root.name.strip(".").split(".")[0], step.name)
    )


def _attempt(
    toolchain: Toolchain, step: BuildStep, work: Workspace, log: Path, say: Say
) -> tuple[int, list[str]]:
    """Run a step; its exit status, and what it has written to the log."""
    command = toolchain.command(step, work)
    container = None if toolchain.inside else container_name(step, work)
    with log.open("a", encoding="utf-8") as file:
        start = file.tell()
        print("$", *command, file=file, flush=True)
        status = _run(command, file, say, container)
    with log.open("rb") as raw:
        raw.seek(start)
        return status, raw.read().decode("utf-8", errors="replace").splitlines()[1:]


def _run(command: Iterable[str], log: IO[str], say: Say, container: str | None) -> int:
    # In a session of its own: Ctrl-C reaches only us, and we stop the command in order.
    with subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                log.write(line)
                log.flush()
                if any(mark in line for mark in _SHOWN):
                    say(line.strip())
            return process.wait()
        except BaseException:
            if container:
                subprocess.run(["docker", "kill", container], capture_output=True, check=False)
            _end(process)
            raise


def _end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_PATIENCE_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        return


def _require_gpus(gpu: str, devices: list[int]) -> None:
    present = {each.index: each for each in require_gpus()}
    capability = contract.compute_capability(gpu)
    for device in devices:
        if device not in present:
            raise BuildError(
                f"The deployment uses GPU {device}, but nvidia-smi lists {len(present)} "
                f"({', '.join(map(str, present)) or 'none'}).",
                hint="Set tensorrt.gpus of the engine to devices of this machine.",
            )
        there = present[device]
        if there.capability != capability:
            raise BuildError(
                f"GPU {device} ({there.name}) has compute capability {there.capability}, but {gpu} "
                f"has {capability}; an engine runs only on the capability that it was built on.",
                hint="Set tensorrt.gpu in the deployment file to this GPU, or build on the other.",
            )
