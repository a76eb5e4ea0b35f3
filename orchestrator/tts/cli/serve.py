"""`tts serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from tts.base.errors import ConfigError
from tts.build.resolve import open_deployment
from tts.checks.requirements import require_gpu
from tts.reports.progress import ProgressLines
from tts.serving.repository.render import require_something
from tts.serving.server.lookup import stop_server
from tts.serving.server.started import services_of
from tts.serving.server.supervise import serve as supervise

from .options import DeploymentArgument


def serve(
    deployment: DeploymentArgument,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the servers of this deployment that are running.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands that would run, and do nothing.")
    ] = False,
) -> None:
    """Start the servers of a deployment and keep them running until Ctrl-C.

    Compiled engines are served by Triton, others by their own servers. One that dies is started
    again.
    """
    spec = open_deployment(deployment)
    if not spec.started():
        require_something(spec)
    services = services_of(spec)
    if dry_run:
        for service in services:
            print(service.planned_command())  # noqa: T201 - to be pasted, so without line breaks
        return
    lines = ProgressLines()
    if stop:
        stopped = [stop_server(service) for service in services]
        lines.say("Stopped." if any(stopped) else f"No server of {spec.name} is running.")
        return
    if not services:
        raise ConfigError(
            f"Deployment {spec.name} says server.kind: embedded, so every program runs the engines "
            "itself and none would use a server.",
            hint="Nothing has to be started: tts solve, tts bench, tts gateway. For a server leave "
            "out server.kind.",
        )
    require_gpu(spec)
    with lines:
        supervise(services, say=lines.say, on_loading=lines.loading)
