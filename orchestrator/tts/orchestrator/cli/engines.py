"""`tts build-engines` and `tts deploy`."""

from __future__ import annotations

from typing import Annotated

import typer

DeploymentArgument = Annotated[
    str, typer.Argument(metavar="DEPLOYMENT", help="A deployment file or a bundled name.")
]


def build_engines(
    deployment: DeploymentArgument,
    force: Annotated[bool, typer.Option("--force", help="Build even if nothing changed.")] = False,
    verify: Annotated[
        bool | None,
        typer.Option(
            help="Compare the engines' logits with transformers. Default: for small models."
        ),
    ] = None,
) -> None:
    """Compile both checkpoints into engines; unchanged ones are skipped."""
    from tts.build.builder import build_engines as build

    from tts.build.spec import load_deployment

    from .say import consoles, say

    out, _ = consoles()
    for report in build(load_deployment(deployment), force=force, verify=verify, say=say):
        out.print(report.sentence(), markup=False, soft_wrap=True)


def deploy(deployment: DeploymentArgument) -> None:
    """Render the Triton model repository of a deployment."""
    from tts.serving.repository import render_repository

    from tts.build.spec import load_deployment

    from .say import consoles

    folder = render_repository(load_deployment(deployment))
    out, _ = consoles()
    out.print(f"model repository: {folder}", markup=False, soft_wrap=True)
