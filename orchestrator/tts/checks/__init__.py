"""All about a deployment that can be checked without a GPU, before an hour of one is spent.

A check is a function that takes a deployment and yields findings; it does not repeat what another
check reports. To add one, write it and name it in a list below.

| module | checks |
|---|---|
| checkpoints | that both checkpoints are there, whole, and long enough for max_seq_len |
| build_settings, build_flags | what is built and how, and the flags of the compiler |
| memory | memory of GPUs and of the machine, requests in flight |
| prompts | tokenizers, prompts, the verifier's dialogue, stop words |
| repository | the Triton model repository, as rendered and on disk |
| built_engines | the engines on disk |
| findings | how a check says what it found |
| machine | not a deployment but this machine: what `tts doctor` looks at |
| requirements | what a command needs of this machine |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tts.build.spec import Deployment
from tts.serving.contract import Finding

from . import build_settings, built_engines, checkpoints, memory, prompts, repository

Check = Callable[[Deployment], Iterable[Finding]]

BEFORE_BUILD: Sequence[Check] = (
    checkpoints.checkpoints,
    checkpoints.lengths,
    build_settings.buildable,
    build_settings.calibration,
    build_settings.flags,
    memory.memory,
    memory.machine_memory,
    memory.host_memory,
    memory.requests,
    prompts.tokenizers,
    prompts.prompt,
    prompts.dialogue,
    prompts.stop_words,
    repository.rendering,
)
BEFORE_DEPLOY: Sequence[Check] = (*BEFORE_BUILD, built_engines.read_back)
ALL: Sequence[Check] = (*BEFORE_DEPLOY, built_engines.current, repository.on_disk)


def lint(deployment: Deployment, checks: Sequence[Check] = ALL) -> list[Finding]:
    """What is wrong with a deployment, what is doubtful, and what could not be checked."""
    return [finding for check in checks for finding in check(deployment)]


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether a deployment with these findings must not be built or served."""
    return any(finding.severity == "error" for finding in findings)
