"""`tts doctor`."""

from __future__ import annotations

import typer


def doctor() -> None:
    """Say what this machine can run and what is missing, in plain words."""
    from tts.checks.machine import diagnose
    from tts.reports.console import consoles
    from tts.reports.findings import print_observations

    out, _ = consoles()
    observations = diagnose()
    print_observations(out, observations)
    if any(seen.state == "missing" for seen in observations):
        raise typer.Exit(1)
