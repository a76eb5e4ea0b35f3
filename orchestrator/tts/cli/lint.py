"""`tts lint`, and what other commands do with its findings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import DeploymentArgument, usable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tts.build.spec import Deployment
    from tts.checks import Check


def lint(
    deployment: DeploymentArgument,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also read every byte of the built engines (their hashes)."),
    ] = False,
    manifests: Annotated[
        Path | None,
        typer.Option(
            callback=usable,
            metavar="DIR",
            help="Also check the manifests that `tts deploy` has written there (target tensorrt).",
        ),
    ] = None,
) -> None:
    """Check everything about a deployment that needs no GPU; fails if there are errors."""
    from tts.build.spec import load_deployment
    from tts.checks import ALL, DEEP, check_manifests, has_errors
    from tts.checks import lint as check
    from tts.reports.console import consoles
    from tts.reports.findings import count_findings, print_findings
    from tts.serving.repository.manifests import require_manifests

    spec = load_deployment(deployment)
    findings = check(spec, DEEP if deep else ALL)
    if manifests:
        require_manifests(spec)
        findings += check_manifests(spec, manifests)
    out, _ = consoles()
    print_findings(out, findings)
    out.print(count_findings(findings))
    if has_errors(findings):
        raise typer.Exit(1)


def stop_on_errors(deployment: Deployment, checks: Sequence[Check]) -> None:
    """Print the errors and warnings and stop, if the deployment has errors."""
    from tts.checks import has_errors
    from tts.checks import lint as check
    from tts.reports.console import consoles, say
    from tts.reports.findings import count_findings, print_findings, warnings_line

    findings = check(deployment, checks)
    if has_errors(findings):
        _, err = consoles()
        print_findings(err, [finding for finding in findings if finding.severity != "note"])
        err.print(count_findings(findings))
        raise typer.Exit(2)
    if line := warnings_line(findings):
        say(line)
