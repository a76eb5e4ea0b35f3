"""What checks have found, as `tts lint` and `tts doctor` print it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from tts.checks.machine import Observation
from tts.serving.contract import Finding

_SEVERITIES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_STATES = {"ok": "green", "note": "yellow", "missing": "red"}


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print findings with a blank line after each, errors first."""
    for severity, style in _SEVERITIES.items():
        for finding in findings:
            if finding.severity == severity:
                console.print(f"[{style}]{severity}[/]  ", end="")
                for line in (
                    f"{finding.where}: {finding.what}",
                    f"  why: {finding.why}",
                    f"  fix: {finding.fix}\n",
                ):
                    console.print(line, markup=False, soft_wrap=True)


def count_findings(findings: Sequence[Finding]) -> str:
    """How many findings of each severity there are."""
    counts = {name: sum(f.severity == name for f in findings) for name in _SEVERITIES}
    return (
        f"{_number(counts['error'], 'error')}, {_number(counts['warning'], 'warning')}, "
        f"{counts['note']} not checked"
    )


def warnings_line(findings: Sequence[Finding]) -> str | None:
    """What a command says that goes on in spite of warnings; None without any."""
    count = sum(finding.severity == "warning" for finding in findings)
    return f"{_number(count, 'warning')}; tts lint explains." if count else None


def print_observations(console: Console, observations: Sequence[Observation]) -> None:
    """Print what the machine has and lacks, a line each, advice below it."""
    for seen in observations:
        found = escape(" ".join(seen.found.split()))
        mark = f"[{_STATES[seen.state]}]{seen.state:7}[/]"
        console.print(f"{mark}  [bold]{seen.what}[/]: {found}", soft_wrap=True)
        if seen.advice:
            console.print(f"         {escape(seen.advice)}", style="dim", soft_wrap=True)


def _number(count: int, what: str) -> str:
    return f"{count} {what}" + "s" * (count != 1)
