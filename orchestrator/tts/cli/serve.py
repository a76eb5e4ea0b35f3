"""`tts serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DeploymentArgument


def serve(
    deployment: DeploymentArgument,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop every server of this deployment that is running.")
    ] = False,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas",
            min=1,
            max=64,
            help="Servers to run side by side; runs on this machine use all of them.",
        ),
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command that would run, and do nothing.")
    ] = False,
) -> None:
    """Serve a deployment with Triton until Ctrl-C; a server that dies is started again."""
    from tts.build.errors import ConfigError
    from tts.build.spec import load_deployment
    from tts.checks.requirements import require_gpu
    from tts.reports.waiting import StartLines
    from tts.serving.repository.render import require_something
    from tts.serving.server.replicas import stop_replicas, supervise_replicas
    from tts.serving.server.start import planned_command
    from tts.serving.server.supervise import supervise

    spec = load_deployment(deployment)
    require_something(spec)
    if dry_run:
        print(planned_command(spec))  # noqa: T201 - to be pasted, so without line breaks
        return
    lines = StartLines()
    if stop:
        lines.say("Stopped." if stop_replicas(spec) else f"No server of {spec.name} is running.")
        return
    if spec.server.kind == "embedded":
        raise ConfigError(
            f"Deployment {spec.name} says server.kind: embedded, so every program runs the engines "
            "itself and none would use a server.",
            hint="Nothing has to be started: tts solve, tts bench, tts gateway. For a server leave "
            "out server.kind.",
        )
    require_gpu(spec)
    with lines:
        if replicas == 1:
            supervise(spec, say=lines.say, on_loading=lines.loading)
        else:
            supervise_replicas(
                spec,
                replicas,
                say=lines.say,
                on_loading=lines.loading,
            )
