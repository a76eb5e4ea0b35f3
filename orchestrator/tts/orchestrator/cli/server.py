"""`tts serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from .engines import DeploymentArgument


def serve(
    deployment: DeploymentArgument,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the server of this deployment that is running.")
    ] = False,
    iteration_log: Annotated[
        bool, typer.Option(help="Write one line per engine step beside the server's log.")
    ] = False,
) -> None:
    """Start the Triton server of a deployment, watch it, and stop it on Ctrl-C."""
    from tts.serving.server import serve_until_interrupted, stop_server

    from tts.build.spec import load_deployment

    from .say import say

    spec = load_deployment(deployment)
    if stop:
        say(stop_server(spec))
    else:
        serve_until_interrupted(spec, iteration_log=iteration_log, say=say)
