"""`tts lint`, and what other commands do with its findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from .options import DeploymentArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tts.build.spec import Deployment
    from tts.checks import Check
    from tts.serving.contract import Finding

STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def lint(deployment: DeploymentArgument) -> None:
    """Check everything about a deployment that needs no GPU; fails if there are errors."""
    from tts.build.spec import load_deployment
    from tts.checks import lint as find
    from tts.reports.console import consoles

    out, _ = consoles()
    findings = find(load_deployment(deployment))
    _show(out, findings)
    out.print(_count(findings))
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


def refuse_errors(deployment: Deployment, checks: Sequence[Check]) -> None:
    """Stop a command whose deployment has errors, after telling them; notes are only counted."""
    from tts.checks import lint as find
    from tts.reports.console import consoles, say

    findings = find(deployment, checks)
    if any(finding.severity == "error" for finding in findings):
        _, err = consoles()
        _show(err, [finding for finding in findings if finding.severity != "note"])
        err.print(_count(findings))
        raise typer.Exit(2)
    if doubts := sum(finding.severity == "warning" for finding in findings):
        say(f"{_number(doubts, 'warning')}; tts lint explains.")


def _show(console: Console, findings: Sequence[Finding]) -> None:
    """Findings with a blank line after each, errors first."""
    for severity, style in STYLES.items():
        for finding in findings:
            if finding.severity == severity:
                console.print(f"[{style}]{severity}[/]  ", end="")
                for line in (
                    f"{finding.where}: {finding.what}",
                    f"  why: {finding.why}",
                    f"  fix: {finding.fix}\n",
                ):
                    console.print(line, markup=False, soft_wrap=True)


def _count(findings: Sequence[Finding]) -> str:
    counts = {name: sum(f.severity == name for f in findings) for name in STYLES}
    return (
        f"{_number(counts['error'], 'error')}, {_number(counts['warning'], 'warning')}, "
        f"{counts['note']} not checked"
    )


def _number(count: int, what: str) -> str:
    return f"{count} {what}" + "s" * (count != 1)
