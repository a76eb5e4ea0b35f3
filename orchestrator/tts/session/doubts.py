"""Warnings of answers that may well be wrong: by their score, or by the model's training."""

from __future__ import annotations

from tts.base import paths
from tts.build.spec import Deployment
from tts.datasets.demo import why_outside

from .plan import calibration_of

DOUBTFUL = 0.5
"""The probability below which an answer is wrong rather than right."""


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


def doubt_of_answer(score: float | None, probability: float | None) -> str | None:
    """A warning of an answer that is probably wrong; None if there is nothing to warn of.

    Without a calibration nobody knows what probability a score stands for.
    """
    if score is None or probability is None or probability >= DOUBTFUL:
        return None
    return (
        f"The verifier's score of {score:.4f} stands for a probability of being right of only "
        f"{probability:.0%} (verifier.calibration). The answer may well be wrong."
    )


def probability_of(deployment: Deployment, score: float) -> float | None:
    """The probability that an answer's score stands for; None without a calibration."""
    measured = calibration_of(deployment)
    return measured.final(score) if measured else None


def doubts(
    deployment: Deployment, question: str, score: float | None, probability: float | None
) -> list[str]:
    """All warnings of an answer."""
    warnings = (doubt_of_question(deployment, question), doubt_of_answer(score, probability))
    return [warning for warning in warnings if warning]
