"""`tts serve`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from .options import DeploymentArgument

CHECK_INTERVAL_S = 1.0


def serve(
    deployment: DeploymentArgument,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the server of this deployment that is running.")
    ] = False,
    iteration_log: Annotated[
        bool, typer.Option(help="Write one line per engine step beside the server's log.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command that would run, and do nothing.")
    ] = False,
) -> None:
    """Start the Triton server of a deployment, watch it, and stop it on Ctrl-C."""
    import signal

    from tts.build.spec import load_deployment
    from tts.checks.requirements import require_gpu
    from tts.reports.console import say
    from tts.serving.server.lookup import stop_server
    from tts.serving.server.start import planned_command, start_server

    spec = load_deployment(deployment)
    if dry_run:
        print(planned_command(spec))  # noqa: T201 - to be pasted, so without line breaks
        return
    if stop:
        say("Stopped." if stop_server(spec) else f"No server of {spec.name} is running.")
        return
    require_gpu(spec)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a plain kill stops it in order too
    with start_server(spec, iteration_log=iteration_log, say=say) as server:
        say("Press Ctrl-C to stop.")
        try:
            while True:
                server.check()
                time.sleep(CHECK_INTERVAL_S)
        except KeyboardInterrupt:
            say("Stopping ...")
