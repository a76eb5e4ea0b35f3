"""The things that this machine can run, and those that are missing, in plain words."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import psutil

from tts.base import extras, paths
from tts.base.errors import TtsError
from tts.base.machine_limits import usable_cores
from tts.build.builder import quick_to_build, require_current
from tts.build.nvidia import gpus
from tts.build.openvino.runtime import BF16_FLAG, cpu_flags, how_to_install
from tts.build.openvino.threads import threads_in_words, threads_of
from tts.build.sandbox import HOW_TO_INSTALL, NO_LIMIT, find_bubblewrap
from tts.build.spec import Deployment
from tts.build.started.engines import ENGINES
from tts.build.tensorrt import contract
from tts.serving.command.server_command import find_program, installed_version
from tts.serving.command.tritonserver import WITHOUT, find_tritonserver
from tts.serving.command.tritonserver import how_to_install as triton_hint
from tts.serving.server.lookup import find_server
from tts.serving.server.started import Engine, started_services
from tts.serving.server.triton import LOG
from tts.serving.server.triton_log import read_start_log

from .findings import Observation, State

MINIMUM_FREE_BYTES = 2 * 1024**3
OPENVINO = ("openvino", "openvino-genai")
_FIRST = 'tts solve demo "Compute 12 + 30 - 5."'
_ON_CPU = ("CPU engine", "Triton server")
"""What engines on this CPU need, and others do not."""


def diagnose(deployment: Deployment | None = None) -> list[Observation]:
    """Look at this machine, and at a deployment: a second, and two for each GiB of its engines."""
    compiling = (_openvino, _tritonserver, _verification)
    return [
        _python(),
        _cpu(),
        _memory(),
        _sandbox(),
        *(look() for look in compiling if deployment is None or deployment.engines()),
        *(() if deployment else (_to_start(),)),
        *_storage(),
        *_gpus(),
        *(_one(deployment) if deployment else ()),
    ]


def verdict(deployment: Deployment | None, observations: Sequence[Observation]) -> str:
    """One line: ready, and the command to type next; or what is missing, and the command."""
    states = {each.what: each.state for each in observations}
    lacking = [each for each in observations if each.state == "missing"]
    if deployment is None and states["NVIDIA GPU"] == "ok":
        lacking = [each for each in lacking if each.what not in _ON_CPU]
    if lacking:
        advice = lacking[-1].advice or lacking[-1].found
        return f"missing: {', '.join(each.what for each in lacking)}. {advice.splitlines()[0]}"
    if deployment is None:
        gpu = "tts init writes a deployment file for your models on the GPU"
        return f"ready: {gpu}" if states["NVIDIA GPU"] == "ok" else f"ready: {_FIRST}"
    if _is_for_other_gpus(deployment):
        return f"missing: its GPU. What fits on it: tts plan {deployment.argument}"
    for each in observations:
        if each.what == _title(deployment) and each.state == "note":
            return f"missing: its engines. {each.advice.splitlines()[0]}"
    return f'ready: tts solve {deployment.argument} "QUESTION"'


def _to_start() -> Observation:
    """The programs of engines that can be started here."""
    programs = {engine.target: shutil.which(engine.program[0]) for engine in ENGINES.values()}
    places = [f"{target} at {program}" for target, program in programs.items() if program]
    if places:
        return Observation("engines to start", "ok", ", ".join(places))
    advice = f"Name one by `executable` or `container`, or install it: {ENGINES['vllm'].install}"
    return Observation("engines to start", "note", f"none of {', '.join(programs)} on PATH", advice)


def _python() -> Observation:
    version = platform.python_version()
    if sys.version_info < (3, 13):
        return Observation("Python", "ok", version)
    return Observation("Python", "note", version, triton_hint())


def _cpu() -> Observation:
    fast = [flag for flag in ("avx2", "avx512f", BF16_FLAG, "amx_bf16") if flag in cpu_flags()]
    cores, all_cores = usable_cores(), os.cpu_count() or 1
    there = f"{cores} cores" if cores == all_cores else f"{cores} of {all_cores} cores"
    facts = f"{there}, {platform.machine()}, {', '.join(fast) or 'no AVX2'}"
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        advice = f"The bundled Triton is for Linux x86_64 only; {WITHOUT}."
        return Observation("CPU", "note", facts, advice)
    if cores < 2:
        return Observation("CPU", "note", facts, "Two engines on one core take turns: expect half.")
    return Observation("CPU", "ok", facts)


def _memory() -> Observation:
    free = psutil.virtual_memory().available
    memory = f"{free / 1024**3:.1f} GiB free"
    if free < MINIMUM_FREE_BYTES:
        return Observation("memory", "note", memory, "The demo needs about 2 GiB.")
    return Observation("memory", "ok", memory)


def _sandbox() -> Observation:
    bubblewrap = find_bubblewrap()
    if bubblewrap.path is None:
        why = f"{bubblewrap.description}: code that a model writes is not executed"
        return Observation("sandbox", "note", why, HOW_TO_INSTALL)
    if not bubblewrap.limits_processes:
        return Observation("sandbox", "note", bubblewrap.description, f"Beware: {NO_LIMIT}.")
    return Observation("sandbox", "ok", f"{bubblewrap.description}, for code that a model writes")


def _openvino() -> Observation:
    versions = {name: _version(name) for name in OPENVINO}
    packages = ", ".join(f"{name} {version or 'absent'}" for name, version in versions.items())
    if all(versions.values()):
        bf16 = "runs here" if BF16_FLAG in cpu_flags() else f"does not run here: no {BF16_FLAG}"
        return Observation("CPU engine", "ok", f"{packages}; precision bf16 {bf16}")
    return Observation("CPU engine", "missing", packages, how_to_install())


def _tritonserver() -> Observation:
    try:
        return Observation("Triton server", "ok", find_tritonserver().describe())
    except TtsError as error:
        return Observation("Triton server", "missing", error.message, error.hint or "")


def _verification() -> Observation:
    absent = [name for name in ("torch", "transformers") if not importlib.util.find_spec(name)]
    if not absent:
        return Observation("engine verification", "ok", "torch and transformers are installed")
    return Observation(
        "engine verification",
        "note",
        f"{' and '.join(absent)} not installed: engines are built but not compared",
        f"{extras.how_to_install('verify')} (choose a CPU build of torch)",
    )


def _storage() -> Iterator[Observation]:
    for what, folder in (("engines", paths.built_dir("x").parent), ("runs", paths.runs_dir())):
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(existing).free / 1024**3
        room = f"{folder} ({free:.0f} GiB free)"
        if not os.access(existing, os.W_OK):
            advice = "Set TTS_HOME to a folder that you may write to."
            yield Observation(what, "missing", f"{folder} is not writable", advice)
        else:
            yield Observation(what, "ok" if free > 1 else "note", room)


def _one(deployment: Deployment) -> Iterator[Observation]:
    if _is_for_other_gpus(deployment):
        name, kind = deployment.argument, "other NVIDIA GPUs" if _nvidia_gpus() else "NVIDIA GPUs"
        advice = (
            f"Needing no GPU: tts plan {name} (what fits), tts build-engines {name} --dry-run, "
            f"tts render {name}."
        )
        yield Observation(_title(deployment), "note", f"for {kind}", advice)
        for each in _started(deployment):  # its programs: of use where the GPU is
            if each.state == "missing":
                yield replace(each, state="note")
        return
    if deployment.started():
        yield from _started(deployment)
    if deployment.engines() or not deployment.started():
        yield _engines(deployment)
    if deployment.target == "openvino":
        yield _threads(deployment)
    if deployment.target == "tensorrt":
        yield from last_start(deployment)


def _started(deployment: Deployment) -> Iterator[Observation]:
    """The programs of engines that are started, what runs of them, and where their logs are."""
    for service in started_services(deployment, deployment.started()):
        log = f"log: {service.log}" if service.log.exists() else "never started here"
        status, advice = log, ""
        state: State = "ok"
        try:
            if isinstance(service, Engine):
                spec = service.spec
                program = find_program(service.role, spec)
                version = installed_version(program, spec.target)
                place = spec.container or f"{program}{f', version {version}' if version else ''}"
                status = f"{place}; {status}"
            if running := find_server(service):
                status = f"{status}; runs: {running}"
        except TtsError as error:
            status, advice = f"{error.message} {log}", error.hint or ""
            state = "missing"
        yield Observation(service.title, state, status, advice)


def _is_for_other_gpus(deployment: Deployment) -> bool:
    gpu = deployment.tensorrt.gpu if deployment.tensorrt else deployment.gpu
    if gpu is None:
        return False
    capability = contract.compute_capability(gpu)
    return capability not in {gpu.capability for gpu in _nvidia_gpus()}


def _title(deployment: Deployment) -> str:
    return f"deployment {deployment.name}"


def _engines(deployment: Deployment) -> Observation:
    if missing := quick_to_build(deployment):
        status = f"{' and '.join(missing)} not built yet: the first search builds it in seconds"
        return Observation(_title(deployment), "ok", status)
    try:
        require_current(deployment, anew=True)
    except TtsError as error:
        return Observation(_title(deployment), "note", error.message, error.hint or "")
    built = " and ".join(deployment.engines())
    others = "no engine of it is compiled here"
    if deployment.started():
        others = "its engines are servers, which are started when they are needed"
    status = f"built and current: {built}" if built else f"nothing to build: {others}"
    return Observation(_title(deployment), "ok", status)


def _threads(deployment: Deployment) -> Observation:
    what = "threads"
    try:
        threads = threads_in_words(deployment)
    except TtsError as error:
        return Observation(what, "note", error.message, error.hint or "")
    stated = [engine.threads for engine in deployment.engines().values() if engine.threads]
    if stated and sum(threads_of(deployment).values()) > max(2, usable_cores()):
        advice = (
            "More threads than cores wait for each other. Leave generator.threads and "
            "verifier.threads out to have the cores divided."
        )
        return Observation(what, "note", threads, advice)
    return Observation(what, "ok", threads)


def _gpus() -> Iterator[Observation]:
    devices = _nvidia_gpus()
    if not devices:
        yield Observation(
            "NVIDIA GPU", "note", "none found: target tensorrt cannot be built or run here"
        )
        return
    described = [
        f"{gpu.name}, {gpu.total >> 20} MiB, compute capability {gpu.capability}" for gpu in devices
    ]
    yield Observation("NVIDIA GPU", "ok", "; ".join(described))
    have, least = devices[0].driver, max(c.driver for c in contract.containers().values())
    if int(have.partition(".")[0] or 0) < int(least.partition(".")[0]):
        advice = (
            f"The containers of TensorRT-LLM {contract.TENSORRT_LLM} want {least} or later, or a "
            "branch that CUDA's forward compatibility supports."
        )
        yield Observation("NVIDIA driver", "note", have, advice)
    else:
        yield Observation("NVIDIA driver", "ok", have)
    if tag := os.environ.get(contract.version_variable()):
        fits = tag in contract.containers()
        advice = "" if fits else f"It must be one of {', '.join(contract.containers())}."
        yield Observation("NVIDIA container", "ok" if fits else "note", f"inside {tag}", advice)
    elif docker := shutil.which("docker"):
        yield Observation("docker", "ok", docker)
    else:
        advice = "Install docker and the NVIDIA Container Toolkit."
        yield Observation(
            "docker", "note", "absent: target tensorrt is built and served in it", advice
        )


_nvidia_gpus = cache(gpus)
"""Asked once, as nvidia-smi takes a second."""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


_LOG_BYTES = 4_000_000
"""Bytes of a log that are read from its beginning, where a start is recorded."""
_SHORT = (
    "More memory was in use on its GPU than planned: stop what else runs there (nvidia-smi), or "
    "plan again (tts plan NAME --write), and start the server again."
)


def last_start(deployment: Deployment) -> Iterator[Observation]:
    """KV pools and longest sequences as the last start had them; nothing where no log has them."""
    try:
        with (paths.server_dir(deployment.name) / LOG).open("rb") as file:
            text = file.read(_LOG_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return
    lines = read_start_log(text.splitlines())
    specs = deployment.engines()
    # TensorRT-LLM rounds up to whole blocks
    pools = {
        role: -(-spec.kv_cache.tokens // spec.kv_cache.block_size) * spec.kv_cache.block_size
        for role, spec in specs.items()
    }
    lengths = {role: spec.max_seq_len for role, spec in specs.items()}
    for what, planned, forms in (
        ("KV pools", pools, {"pool": "tokens"}),
        ("longest sequences", lengths, {"blocks": "length", "shortened": "length"}),
    ):
        numbers = [each.numbers[forms[each.form]] for each in lines if each.form in forms]
        logged = dict.fromkeys(numbers)  # each once: no line says of which engine it is
        title = f"{what} of the last start"
        in_words = " and ".join(f"{tokens:,} tokens" for tokens in logged)
        if logged.keys() - planned.values():
            in_file = " and ".join(f"{tokens:,} ({role})" for role, tokens in planned.items())
            yield Observation(title, "note", f"{in_words}, where the file has {in_file}", _SHORT)
        elif logged:
            yield Observation(title, "ok", in_words)
