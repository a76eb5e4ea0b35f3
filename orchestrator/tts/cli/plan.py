"""`tts plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .options import DeploymentArgument

if TYPE_CHECKING:
    from rich.console import Console

    from tts.build.spec import Deployment

MAX_CONCURRENCY = 4096
"""Beyond, a simulation takes hours."""


def plan(
    deployment: DeploymentArgument,
    write: Annotated[
        bool,
        typer.Option("--write", help="Set kv_cache.tokens of both engines in the file."),
    ] = False,
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency",
            metavar="N,...",
            help="So many problems at a time: which placement and parallelism are fastest? "
            "By simulation.",
            show_default="only the memory is planned",
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus",
            min=1,
            max=64,
            help="With --concurrency: how many GPUs there are.",
            show_default="as many as the file uses",
        ),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--n", min=1, help="With --concurrency: completions per problem.", show_default="16"
        ),
    ] = None,
) -> None:
    """Plan a deployment's memory, of its GPUs or of this machine; needs no GPU.

    With --concurrency: every placement on --gpus that fits, simulated
    (docs/explanation/simulation.md).
    """
    from tts.build.deployment_edit import write_values
    from tts.build.spec import deployment_file, load_deployment
    from tts.build.tensorrt.memory_plan import plan_memory
    from tts.reports.console import consoles, say
    from tts.reports.memory_plan import print_memory_plan, print_pools

    out, _ = consoles()
    spec = load_deployment(deployment)
    if concurrency is not None:
        if write:
            raise typer.BadParameter("does not go with --concurrency", param_hint="--write")
        _plan_placement(out, spec, _counts(concurrency), gpus, n or 16)
        return
    if gpus is not None or n is not None:
        raise typer.BadParameter("applies with --concurrency only", param_hint="--gpus, --n")
    for role, remote in spec.remotes().items():
        say(f"The {role} runs at {', '.join(remote.url)}: its memory is not planned here.")
    if not spec.engines():
        return
    if spec.target == "openvino":
        _plan_host(out, spec, write=write)
        return
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


def _plan_host(out: Console, deployment: Deployment, *, write: bool) -> None:
    from tts.build.errors import ConfigError
    from tts.build.machine_memory import memory_limit
    from tts.build.openvino.memory import plan_host_memory
    from tts.reports.memory_plan import print_host_memory

    if write:
        raise ConfigError(
            f"Deployment {deployment.name!r}: target is 'openvino', for which KV pools are not "
            "planned, only added up.",
            hint="Set kv_cache.tokens in the file; `tts plan` without --write says what they take.",
        )
    print_host_memory(out, plan_host_memory(deployment), memory_limit())


def _counts(text: str) -> list[int]:
    """Numbers of problems, as `1,8,64`."""
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = []
    if not counts or not 1 <= counts[0] <= counts[-1] <= MAX_CONCURRENCY:
        raise typer.BadParameter(
            f"{text!r:.100}: give whole numbers from 1 to {MAX_CONCURRENCY:,}, as 1,8,64",
            param_hint="--concurrency",
        )
    return counts


def _plan_placement(
    out: Console, deployment: Deployment, concurrencies: list[int], gpus: int | None, n: int
) -> None:
    from tts.build.errors import ConfigError
    from tts.build.tensorrt.gpus import gpus_of
    from tts.build.tensorrt.placements import placed
    from tts.lab.bench.simulated_run import PlacedRun, simulate_placements
    from tts.reports.console import say
    from tts.reports.simulation import print_placements

    deployment.compiled_pair()
    if deployment.target == "openvino":
        raise ConfigError(
            f"Deployment {deployment.name!r}: target is 'openvino', for which there is nothing to "
            "place: both engines are on this machine's cores, and how fast they are is measured.",
            hint=f"Measure it (tts tune {deployment.named}), then compare schedules with "
            f"tts simulate {deployment.named} --tuned RESULT.",
        )
    gpus = gpus or len(gpus_of(deployment))
    candidates, refused = placed(deployment, gpus)
    if not candidates:
        raise ConfigError(
            f"Deployment {deployment.name!r} cannot be placed on {gpus} GPUs. {refused[-1].reason}",
            hint="More GPUs (--gpus), a larger tensorrt.gpu or a smaller precision.",
        )

    def told(run: PlacedRun) -> None:
        say(
            f"{run.concurrency} at a time, {run.placement.text}: {run.problems_per_min:,.0f} "
            "problems per minute, simulated"
        )

    runs = simulate_placements(candidates, concurrencies, n, told)
    print_placements(out, deployment, gpus, n, runs, refused)
