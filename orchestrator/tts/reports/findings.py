"""What `tts lint` and `tts doctor` print: findings, and this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from .figures.charts import count_of

if TYPE_CHECKING:
    from tts.base.findings import Finding
    from tts.checks.findings import Observation, State

_SEVERITIES = {"error": "bold red", "warning": "yellow", "note": "dim"}


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
    several = (count_of(counts[name], name) for name in ("error", "warning"))
    return ", ".join([*several, f"{counts['note']} not checked"])


def warnings_line(findings: Sequence[Finding]) -> str | None:
    """What a command says that goes on in spite of warnings; None without any."""
    count = sum(finding.severity == "warning" for finding in findings)
    return f"{count_of(count, 'warning')}; tts lint explains." if count else None


_STATES: dict[State, str] = {"ok": "green", "note": "yellow", "missing": "red"}


def print_observation(console: Console, observation: Observation) -> None:
    """Print what was found, and advice below it."""
    mark = f"[{_STATES[observation.state]}]{observation.state:8}[/]"
    text = escape(" ".join(observation.found.split()))
    console.print(f"{mark}  [bold]{observation.what}[/]: {text}", soft_wrap=True)
    for line in observation.advice.splitlines():
        console.print(f"          {escape(line)}", style="dim", soft_wrap=True)
