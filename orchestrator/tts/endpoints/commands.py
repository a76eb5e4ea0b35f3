"""A program of the user's as a verifier: JSON on its standard input, a score on its output.

It gets `{"question", "steps", "text", "extra"}`: the steps without white space around them, the
text of the chain as it was written, and what else the problem has. It writes one JSON value and
nothing else: a number within [0, 1], or an object with it as `score`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from tts.build.sandbox import Failure, ProgramEnd, Sandbox

from .base import ScoreCall, VerifierResult

logger = logging.getLogger(__name__)


class CommandVerifier:
    """A program that scores a candidate in a sandbox.

    A candidate on which it fails scores 0: code whose tests crash, hang or use up what they may is
    wrong, and the search goes on. Such a score is counted as one without a verdict.
    """

    def __init__(self, sandbox: Sandbox, command: Sequence[str]) -> None:
        """Raises ConfigError if there is no such program."""
        self._sandbox = sandbox
        self._command = sandbox.resolved(command)
        self._has_failed = False

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier; cancelling it ends the program."""
        candidate = {
            "question": call.question,
            "steps": call.steps,
            "text": call.text,
            "extra": dict(call.extra),
        }
        outcome = await self._sandbox.run(self._command, json.dumps(candidate).encode())
        score = None if outcome.failure else _score(outcome.output)
        if score is None:
            self._warn(outcome)
            return VerifierResult(0.0, no_verdict=1)
        return VerifierResult(score)

    def _warn(self, outcome: ProgramEnd) -> None:
        """Warn of the first failure: it may be the program's, and then all candidates score 0."""
        if self._has_failed:
            return
        self._has_failed = True
        why = outcome.failure.value if outcome.failure else f"{outcome.output[:80]!r} is no score"
        if outcome.failure is Failure.STATUS:
            why += f" (exit status {outcome.status})"
        last_line = outcome.errors.strip().rpartition("\n")[2]
        logger.warning(
            "%s has failed on a candidate, which scores 0, as further ones will: %s%s",
            self._command[-1],
            why,
            f": {last_line:.200}" if last_line else "",
        )


def _score(output: bytes) -> float | None:
    """The score that a program wrote; None for anything else."""
    try:
        value: Any = json.loads(output)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        value = value.get("score")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        return None  # NaN, too
    return float(value)
