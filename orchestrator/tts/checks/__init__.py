"""All about a deployment that can be checked without a GPU, before an hour of one is spent.

A check is a function that takes a deployment and yields findings; it says nothing of what another
check has said. To add one is to write it and to name it in a list below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tts.build.spec import Deployment
from tts.serving.contract import Finding

from . import engines, repository, texts

Check = Callable[[Deployment], Iterable[Finding]]

BEFORE_BUILD: Sequence[Check] = (
    engines.checkpoints,
    engines.lengths,
    engines.buildable,
    engines.calibration,
    engines.flags,
    engines.memory,
    engines.host_memory,
    engines.requests,
    texts.tokenizers,
    texts.prompt,
    texts.dialogue,
    texts.stop_words,
    repository.rendering,
)
BEFORE_DEPLOY: Sequence[Check] = (*BEFORE_BUILD, engines.read_back)
ALL: Sequence[Check] = (*BEFORE_DEPLOY, engines.current, repository.on_disk)


def lint(deployment: Deployment, checks: Sequence[Check] = ALL) -> list[Finding]:
    """What is wrong with a deployment, what is doubtful, and what could not be checked."""
    return [finding for check in checks for finding in check(deployment)]
