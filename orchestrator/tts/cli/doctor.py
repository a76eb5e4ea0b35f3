"""`tts doctor`."""

from __future__ import annotations

import typer


def doctor() -> None:
    """Say what this machine can run and what is missing, in plain words."""
    from rich.markup import escape

    from tts.checks.machine import diagnose
    from tts.reports.console import consoles

    out, _ = consoles()
    findings = diagnose()
    marks = {"ok": "[green]ok     [/]", "note": "[yellow]note   [/]", "missing": "[red]missing[/]"}
    for finding in findings:
        found = escape(" ".join(finding.found.split()))
        out.print(f"{marks[finding.state]}  [bold]{finding.what}[/]: {found}", soft_wrap=True)
        if finding.advice:
            out.print(f"         {escape(finding.advice)}", style="dim", soft_wrap=True)
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)
