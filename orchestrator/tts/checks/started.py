"""Checks of engines that are started: their memory, programs, options and ports."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

from tts.base.errors import CheckpointError, ConfigError, ServerError, did_you_mean
from tts.base.findings import Finding
from tts.base.machine_limits import memory_limit
from tts.build.checkpoint_files import how_to_get
from tts.build.inputs import Inputs
from tts.build.model_config import shape_of
from tts.build.started.command import command_of, require_labels
from tts.build.started.engines import ENGINES, option_names, unknown_options
from tts.build.started.memory import budgets, config_folder
from tts.build.tensorrt.gpus import GIB
from tts.serving.command.server_command import find_program, installed_version

from .findings import doubtful, not_checked, refused


def plan(inputs: Inputs) -> Iterator[Finding]:
    """Both engines fit where they run, and can do what is asked of them."""
    deployment = inputs.deployment
    try:
        shares = budgets(deployment)
        for role in deployment.started():
            command_of(deployment, role, 1, budget=shares[role])
    except ConfigError as error:
        why = "the engine would end while it loads, after minutes"
        yield refused(error, deployment, "memory plan", why)
        return
    except CheckpointError as error:
        yield not_checked(error.message, "memory plan", "nobody knows what fits", error.hint or "")
        return
    limit = memory_limit()
    needed = sum(share.kv_bytes + (share.weights or 0) for share in shares.values())
    if deployment.started() and not deployment.gpu and limit and needed > limit.size:
        yield Finding(
            f"needs {needed / GIB:.2f} GiB; there are {limit.size / GIB:.2f} in {limit.of}",
            "memory plan",
            "the kernel would end a server, or another process, in the middle of a run",
            "Set kv_gib, lower max_seq_len and in_flight_requests, or use a smaller model.",
        )


def checkpoints(inputs: Inputs) -> Iterator[Finding]:
    """A checkpoint that is a path is there, and long enough."""
    for role, spec in inputs.deployment.started().items():
        path, where = spec.checkpoint, f"{role}.checkpoint"
        if path.is_absolute() and not path.exists():
            yield not_checked(f"there is no {path}", where, "the engine loads it", how_to_get(path))
        try:
            positions = shape_of(config_folder(spec), spec.target).max_position_embeddings
        except CheckpointError:
            continue
        if spec.max_seq_len > positions:
            yield Finding(
                f"is {spec.max_seq_len}, but the model has {positions} positions",
                f"{role}.max_seq_len",
                "the engine refuses to start, or answers with noise beyond its last position",
                f"Set {role}.max_seq_len to at most {positions}.",
            )


def programs(inputs: Inputs) -> Iterator[Finding]:
    """The engine's program is here, of the version that was read, and has the options."""
    for role, spec in inputs.deployment.started().items():
        engine = ENGINES[spec.target]
        for name in unknown_options(spec.target, spec.extra_args):
            yield doubtful(  # another version may know it
                f"has {name}, which {spec.target} {engine.version} does not know",
                f"{role}.extra_args",
                "the engine refuses to start",
                f"{did_you_mean(name, option_names(spec.target))}Correct it, or leave it out.",
            )
        if spec.container:
            version: str | None = spec.container.rpartition(":")[2].removeprefix("v")
        else:
            try:
                version = installed_version(find_program(role, spec), spec.target)
                require_labels(inputs.deployment, role, version or "")
            except ConfigError as error:
                where, why = f"{role}.executable", "its scores would be wrong"
                yield refused(error, inputs.deployment, where, why)
                continue
            except ServerError as error:
                yield not_checked(
                    error.message.rstrip("."),
                    f"{role}.executable",
                    "the engine is started by it",
                    error.hint or "",
                )
                continue
        if version and re.match(r"\d", version) and not version.startswith(engine.version):
            yield doubtful(
                f"is {spec.target} {version}; options and memory were read from {engine.version}",
                f"{role}.{'container' if spec.container else 'executable'}",
                "an option may be missing or mean something else",
                f"Compare the line of `tts plan` with its --help, or use {engine.version}.",
            )


def ports(inputs: Inputs) -> Iterator[Finding]:
    """A port that is stated is free."""
    for role, spec in inputs.deployment.started().items():
        if spec.port == "auto":
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", spec.port))
            except OSError as error:
                yield doubtful(  # it may be this deployment's own server
                    f"is {spec.port}, where nothing can listen now: {error.strerror}",
                    f"{role}.port",
                    "the engine cannot start while something else has it",
                    f"Set {role}.port to auto, or end what listens there.",
                )


CHECKS = (plan, checkpoints, programs, ports)
