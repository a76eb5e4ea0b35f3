"""`tts lint` and `tts doctor`, and what other commands do with findings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from tts.base.findings import Finding
from tts.build.inputs import Inputs
from tts.build.resolve import open_deployment
from tts.build.spec import Deployment, load_deployment
from tts.checks import Check, has_errors
from tts.checks import lint as check
from tts.checks.after_build import ALL, DEEP, check_manifests
from tts.checks.findings import Observation
from tts.checks.machine import diagnose, verdict
from tts.fleet.remotes import ask
from tts.reports.console import consoles, say
from tts.reports.findings import count_findings, print_findings, print_observation, warnings_line
from tts.serving.repository.manifests import require_manifests

from .json_output import print_json
from .options.build import Lint
from .options.look import Doctor


@dataclass(frozen=True, kw_only=True)
class LintDocument:
    """The findings about a deployment."""

    deployment: str
    errors: int
    """With any, the exit code is 1."""
    warnings: int
    not_checked: int
    """Findings that say what could not be checked."""
    findings: list[Finding]


@dataclass(frozen=True, kw_only=True)
class DoctorDocument:
    """The abilities of this machine."""

    deployment: str | None
    """The one that was looked at; null: none."""
    observations: list[Observation]
    """With any that is missing, the exit code is 1."""


def lint(options: Lint) -> None:
    """Run `tts lint`."""
    spec = open_deployment(options.deployment)
    findings = check(spec, DEEP if options.deep else ALL)
    if options.manifests:
        require_manifests(spec)
        findings += check_manifests(spec, options.manifests)
    if options.as_json:
        count = [finding.severity for finding in findings].count
        document = LintDocument(
            deployment=spec.name,
            errors=count("error"),
            warnings=count("warning"),
            not_checked=count("note"),
            findings=findings,
        )
        print_json(document)
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


def doctor(options: Doctor) -> None:
    """Run `tts doctor`."""
    out, _ = consoles()
    spec = None if options.deployment is None else load_deployment(options.deployment)
    observations = diagnose(spec)
    if spec and spec.remotes():
        observations += asyncio.run(ask(spec))
    if options.as_json:
        name = spec.name if spec else None
        print_json(DoctorDocument(deployment=name, observations=observations))
    else:
        for observation in observations:
            print_observation(out, observation)
        out.print(f"\n{verdict(spec, observations)}", markup=False, highlight=False, soft_wrap=True)
    if any(observation.state == "missing" for observation in observations):
        raise typer.Exit(1)
