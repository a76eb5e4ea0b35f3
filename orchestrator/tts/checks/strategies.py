"""The check of what a deployment says about searches."""

from __future__ import annotations

from collections.abc import Iterator

from tts.build.spec import Deployment
from tts.serving.contract import Finding
from tts.strategies.parameters import block_problems


def strategies(deployment: Deployment) -> Iterator[Finding]:
    """Every block of `strategies` names a strategy, with parameters that it has and can have."""
    for where, what in block_problems(deployment):
        yield Finding(
            what.removesuffix("."),
            where,
            "every benchmark and every solve on this deployment would be refused",
            "Correct it, or leave it out: then the strategy's own default holds.",
        )
