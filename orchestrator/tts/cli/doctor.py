"""`tts lint` and `tts doctor`, and what other commands do with findings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tts.build.inputs import Inputs
from tts.build.resolve import open_deployment
from tts.build.spec import Deployment, load_deployment
from tts.checks import Check, has_errors
from tts.checks import lint as check
from tts.checks.after_build import ALL, DEEP
from tts.checks.machine import diagnose
from tts.checks.manifests import check_manifests
from tts.fleet.remotes import ask
from tts.reports.console import consoles, say
from tts.reports.findings import count_findings, print_findings, print_observation, warnings_line
from tts.serving.repository.manifests import require_manifests

from .completion import deployments
from .documents.deployments import DoctorDocument, LintDocument
from .json_output import print_json
from .options import DeploymentArgument, JsonOption, usable


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
            help="Also check the manifests that `tts render` has written there (target tensorrt).",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check everything about a deployment that needs no GPU; fails if there are errors."""
    spec = open_deployment(deployment)
    findings = check(spec, DEEP if deep else ALL)
    if manifests:
        require_manifests(spec)
        findings += check_manifests(spec, manifests)
    if as_json:
        print_json(LintDocument.of(spec.name, findings))
    else:
        out, _ = consoles()
        print_findings(out, findings)
        out.print(count_findings(findings))
    if has_errors(findings):
        raise typer.Exit(1)


def stop_on_errors(
    deployment: Deployment, checks: Sequence[Check], inputs: Inputs | None = None
) -> None:
    """Print the errors and warnings and stop, if the deployment has errors."""
    findings = check(deployment, checks, inputs)
    if has_errors(findings):
        _, err = consoles()
        print_findings(err, [finding for finding in findings if finding.severity != "note"])
        err.print(count_findings(findings))
        raise typer.Exit(2)
    if line := warnings_line(findings):
        say(line)


def doctor(
    deployment: Annotated[
        str | None,
        typer.Argument(
            metavar="DEPLOYMENT",
            autocompletion=deployments,
            help="A deployment file or a bundled name: its engines, and their threads here.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what this machine can run and what is missing, in plain words."""
    out, _ = consoles()
    spec = None if deployment is None else load_deployment(deployment)
    observations = diagnose(spec)
    if spec and spec.remotes():
        observations += asyncio.run(ask(spec))
    if as_json:
        name = spec.name if spec else None
        print_json(DoctorDocument(deployment=name, observations=observations))
    else:
        for observation in observations:
            print_observation(out, observation)
    if any(observation.state == "missing" for observation in observations):
        raise typer.Exit(1)
