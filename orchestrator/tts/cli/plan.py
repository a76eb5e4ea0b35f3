"""`tts plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DeploymentArgument


def plan(
    deployment: DeploymentArgument,
    write: Annotated[
        bool,
        typer.Option("--write", help="Set kv_cache.tokens of both engines in the file."),
    ] = False,
) -> None:
    """Plan the GPU memory of a deployment for target tensorrt; needs no GPU."""
    from tts.build.deployment_edit import write_values
    from tts.build.spec import deployment_file, load_deployment
    from tts.build.tensorrt.memory_plan import plan_memory
    from tts.reports.console import consoles
    from tts.reports.memory_plan import print_memory_plan, print_pools

    out, _ = consoles()
    spec = load_deployment(deployment)
    planned = plan_memory(spec)
    given = {role: engine.kv_cache.tokens for role, engine in spec.engines().items()}
    wanted = {role: engine.tokens for role, engine in planned.engines.items()}
    print_memory_plan(out, planned)
    print_pools(out, planned, given, wanted)
    if given == wanted:
        return
    if write:
        file = deployment_file(deployment)
        write_values(file, {(role, "kv_cache", "tokens"): wanted[role] for role in wanted})
        out.print(f"Written to {file}", markup=False, soft_wrap=True)
    else:
        out.print(f"`tts plan {deployment} --write` writes them.", markup=False, soft_wrap=True)
