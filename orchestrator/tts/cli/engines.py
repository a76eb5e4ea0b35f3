"""`tts build-engines` and `tts deploy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import DeploymentArgument, usable


def build_engines(
    deployment: DeploymentArgument,
    force: Annotated[bool, typer.Option("--force", help="Build even if nothing changed.")] = False,
    verify: Annotated[
        bool | None,
        typer.Option(
            help="Compare the engines' logits with transformers (target openvino). "
            "Default: for small models."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands and build nothing.")
    ] = False,
) -> None:
    """Compile both checkpoints into engines; unchanged ones are skipped."""
    from tts.build.builder import build_engines as build
    from tts.build.builder import preview_build
    from tts.build.spec import load_deployment
    from tts.checks import BEFORE_BUILD
    from tts.checks.requirements import require_checkpoints
    from tts.reports.build import built_sentence
    from tts.reports.console import consoles
    from tts.reports.waiting import BuildLines

    from .lint import stop_on_errors

    spec = load_deployment(deployment)
    stop_on_errors(spec, BEFORE_BUILD)
    out, _ = consoles()
    if dry_run:
        for line in preview_build(spec):
            out.print(line, markup=False, soft_wrap=True)
        return
    require_checkpoints(spec)
    with BuildLines() as lines:
        reports = build(spec, force=force, verify=verify, say=lines.say)
    for report in reports:
        out.print(built_sentence(report), markup=False, soft_wrap=True)


def deploy(
    deployment: DeploymentArgument,
    manifests: Annotated[
        Path | None,
        typer.Option(
            callback=usable,
            metavar="DIR",
            help="Also write manifests for docker compose and Kubernetes there (NVIDIA GPUs).",
        ),
    ] = None,
) -> None:
    """Render the Triton model repository of a deployment."""
    from tts.build.spec import load_deployment
    from tts.checks import BEFORE_DEPLOY
    from tts.reports.build import deployed_notes
    from tts.reports.console import consoles, say
    from tts.serving.repository.manifests import render_manifests, require_manifests
    from tts.serving.repository.render import missing_engines, render_repository

    from .lint import stop_on_errors

    spec = load_deployment(deployment)
    if manifests:
        require_manifests(spec)
    stop_on_errors(spec, BEFORE_DEPLOY)
    folder = render_repository(spec)
    out, _ = consoles()
    out.print(f"model repository: {folder}", markup=False, soft_wrap=True)
    for file in render_manifests(spec, manifests) if manifests else ():
        out.print(f"manifest: {file}", markup=False, soft_wrap=True)
    missing = missing_engines(spec)
    for line in deployed_notes(spec, deployment, manifests=bool(manifests), missing=missing):
        say(line)
