"""`tts serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DeploymentArgument


def serve(
    deployment: DeploymentArgument,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the server of this deployment that is running.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command that would run, and do nothing.")
    ] = False,
) -> None:
    """Serve a deployment with Triton until Ctrl-C; a server that dies is started again."""
    from tts.build.errors import ConfigError
    from tts.build.resolve import open_deployment
    from tts.checks.requirements import require_gpu
    from tts.reports.progress import ProgressLines
    from tts.serving.repository.render import require_something
    from tts.serving.server.lookup import stop_server
    from tts.serving.server.start import planned_command
    from tts.serving.server.supervise import supervise

    spec = open_deployment(deployment)
    require_something(spec)
    if dry_run:
        print(planned_command(spec))  # noqa: T201 - to be pasted, so without line breaks
        return
    lines = ProgressLines()
    if stop:
        lines.say("Stopped." if stop_server(spec) else f"No server of {spec.name} is running.")
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
        supervise(spec, say=lines.say, on_loading=lines.loading)
