"""How checks say what they found."""

from __future__ import annotations

from tts.build.errors import TtsError
from tts.build.spec import Deployment
from tts.serving.contract import Finding


def refused(
    error: TtsError, deployment: Deployment, where: str, why: str, fix: str = ""
) -> Finding:
    """The finding for something that would be refused later; `fix` if the error has no hint."""
    what = error.message.removeprefix(f"Deployment {deployment.name!r}: ").removesuffix(".")
    return Finding(what, where, why, error.hint or fix or "Change it in the deployment file.")


def not_checked(what: str, where: str, why: str, fix: str) -> Finding:
    """The note for something that cannot be checked here."""
    return Finding(f"not checked: {what}", where, why, fix, "note")
