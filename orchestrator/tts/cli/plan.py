"""`tts plan`."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer
from rich.console import Console

from tts.base.errors import CheckpointError, ConfigError
from tts.base.machine_limits import memory_limit
from tts.build.deployment_edit import write_values
from tts.build.openvino.memory import plan_host_memory
from tts.build.resolve import resolve_models
from tts.build.spec import Deployment, deployment_file, load_deployment
from tts.build.started.command import command_of
from tts.build.started.memory import budgets, is_known, plan_started
from tts.build.tensorrt.memory_plan import plan_memory
from tts.reports.console import consoles, say
from tts.reports.memory_plan import (
    print_budgets,
    print_headroom,
    print_host_memory,
    print_memory_plan,
    print_pools,
)

from .documents.deployments import gpu_memory, host_memory, plan_document
from .json_output import print_json
from .options import DeploymentArgument, JsonOption


def plan(
    deployment: DeploymentArgument,
    write: Annotated[
        bool,
        typer.Option("--write", help="Set kv_cache.tokens of both engines in the file."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Plan a deployment's memory, of its GPUs or of this machine; needs no GPU."""
    out, _ = consoles()
    spec = load_deployment(deployment)
    if spec.engines() or not all(map(is_known, spec.started().values())):
        spec = resolve_models(spec)
    for role, remote in spec.remotes().items():
        say(f"The {role} runs at {', '.join(remote.url)}: its memory is not planned here.")
    if spec.started():
        _plan_started(out, spec, write=write, as_json=as_json)
        if as_json or spec.target != "openvino":
            return
    if not spec.engines():
        if as_json:
            print_json(plan_document(spec))
        return
    if spec.target == "openvino":
        _plan_host(out, spec, write=write, as_json=as_json)
        return
    planned = plan_memory(spec)
    pools = {role: engine.kv_cache.tokens for role, engine in spec.engines().items()}
    planned_pools = {role: engine.tokens for role, engine in planned.engines.items()}
    if not as_json:
        print_memory_plan(out, planned)
        print_headroom(out, planned)
        print_pools(out, planned, pools, planned_pools)
    file = deployment_file(deployment) if write and pools != planned_pools else None
    if file:
        write_values(
            file, {(role, "kv_cache", "tokens"): tokens for role, tokens in planned_pools.items()}
        )
    if as_json:
        changed = str(file) if file else None
        print_json(plan_document(spec, on_gpus=gpu_memory(planned, pools), written=changed))
    elif file:
        out.print(f"Written to {file}", markup=False, soft_wrap=True)
    elif pools != planned_pools:
        out.print(f"`tts plan {deployment} --write` writes them.", markup=False, soft_wrap=True)


def _plan_started(out: Console, deployment: Deployment, *, write: bool, as_json: bool) -> None:
    if write:
        raise ConfigError(
            f"Deployment {deployment.name!r}: its engines are started, with the memory that is "
            "planned at each start.",
            hint="Leave --write out. kv_gib in the file states a KV cache in place of the plan's.",
        )
    planned = None
    if deployment.gpu:
        with suppress(CheckpointError):  # of a shape that is not known: the file states its pools
            planned = plan_started(deployment)
    shares, first = budgets(deployment), 8000
    lines = {
        role: command_of(
            deployment,
            role,
            first + place if spec.port == "auto" else spec.port,
            budget=shares[role],
        )
        for place, (role, spec) in enumerate(deployment.started().items())
    }
    if as_json:
        memory = gpu_memory(planned, {}) if planned else None
        print_json(plan_document(deployment, on_gpus=memory, commands=lines))
        return
    if planned:
        print_memory_plan(out, planned)
    else:
        print_budgets(out, deployment, shares)
    out.print("\nThe command lines, as `tts serve` starts them on free ports and with a key:")
    for role, line in lines.items():
        out.print(f"\n# {role}\n{line}", markup=False, highlight=False, soft_wrap=True)


def _plan_host(out: Console, deployment: Deployment, *, write: bool, as_json: bool) -> None:
    if write:
        raise ConfigError(
            f"Deployment {deployment.name!r}: target is 'openvino', for which KV pools are not "
            "planned, only added up.",
            hint="Set kv_cache.tokens in the file; `tts plan` without --write says what they take.",
        )
    plan, limit = plan_host_memory(deployment), memory_limit()
    if as_json:
        print_json(plan_document(deployment, on_host=host_memory(plan, limit)))
        return
    print_host_memory(out, plan, limit)
