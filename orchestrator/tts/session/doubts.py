"""Warnings of answers that may well be wrong: by their score, or by the model's training."""

from __future__ import annotations

from tts.build import paths
from tts.build.spec import Deployment, TextVerifier
from tts.datasets.demo import why_outside

DOUBTFUL = 0.5
"""The score below which a verifier takes an answer to be wrong rather than right."""
_NO_PROBABILITY = frozenset({"likelihood"})
"""Formats whose scores say which of two steps is better, but not whether one is right."""


def is_demo_pair(deployment: Deployment) -> bool:
    """Whether the generator is a bundled one, which knows one kind of question."""
    bundled = (paths.deployments_dir().parent / "checkpoints").resolve()
    folder = deployment.generator.tokenizer_folder.resolve()
    return folder in (bundled / "demo-generator", bundled / "demo-thinking")


def doubt_of_question(deployment: Deployment, question: str) -> str | None:
    """A warning of a question that the model cannot be expected to answer; None if it can."""
    if is_demo_pair(deployment) and (why := why_outside(question)):
        return f"{why} The answer may well be wrong."
    return None


def doubt_of_score(deployment: Deployment, score: float | None) -> str | None:
    """A warning of an answer with a low score; None if there is nothing to warn of."""
    spec = deployment.verifier
    form = None if isinstance(spec, TextVerifier) else spec.format
    if score is None or score >= DOUBTFUL or form in _NO_PROBABILITY:
        return None
    return f"The verifier's score of this answer is only {score:.4f}. It may well be wrong."


def doubts(deployment: Deployment, question: str, score: float | None) -> list[str]:
    """All warnings of an answer."""
    found = (doubt_of_question(deployment, question), doubt_of_score(deployment, score))
    return [doubt for doubt in found if doubt]
