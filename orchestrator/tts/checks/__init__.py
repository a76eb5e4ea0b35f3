"""All about a deployment that can be checked without a GPU, before an hour of one is spent.

A check is a function that takes a deployment and yields findings; it does not repeat what another
check reports. To add one, write it and name it in a list below.

| module | checks |
|---|---|
| checkpoints | that both checkpoints are there, of files, whole, and long enough for max_seq_len |
| model_pair | that the two models belong together, and the verifier's format to its labels |
| build_settings | what is built and how, and the flags of the compiler |
| placement | GPUs, their memory, and the machine's |
| prompts | tokenizers, prompts, the verifier's dialogue, stop words, end tokens |
| searches | strategies, what guided decoding needs, how much is in flight at a time |
| repository | the Triton model repository: as rendered, on disk, and its compiled code |
| server_start | where a server would listen, and the docker command that runs it |
| manifests | docker compose and Kubernetes, as they lie on disk |
| built_engines | the engines on disk |
| findings | how a check reports a finding, and the look at a path |
| machine | not a deployment but this machine: what `tts doctor` looks at |
| drafting | what `tts init` has to know of this machine, checkpoints and servers |
| requirements | what a command needs of this machine |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tts.build.spec import Deployment
from tts.serving.contract import Finding

from . import (
    build_settings,
    built_engines,
    checkpoints,
    model_pair,
    placement,
    prompts,
    repository,
    searches,
    server_start,
)
from .manifests import check_manifests

__all__ = ["ALL", "BEFORE_BUILD", "BEFORE_DEPLOY", "DEEP", "check_manifests", "has_errors", "lint"]

Check = Callable[[Deployment], Iterable[Finding]]

BEFORE_BUILD: Sequence[Check] = (
    checkpoints.checkpoints,
    checkpoints.checkpoint_files,
    checkpoints.lengths,
    model_pair.exchanged,
    model_pair.verifier_length,
    model_pair.labels,
    build_settings.buildable,
    build_settings.image,
    build_settings.calibration,
    build_settings.flags,
    placement.gpu_numbers,
    placement.replicas,
    placement.host_cache,
    placement.memory,
    placement.machine_memory,
    model_pair.function,
    searches.requests,
    searches.verifier_tokens,
    prompts.tokenizers,
    prompts.round_trip,
    prompts.end_tokens,
    prompts.prompt,
    prompts.dialogue,
    prompts.stop_words,
    searches.token_texts,
    repository.rendering,
)
BEFORE_DEPLOY: Sequence[Check] = (*BEFORE_BUILD, built_engines.read_back)
ALL: Sequence[Check] = (
    *BEFORE_DEPLOY,
    server_start.host,
    server_start.container_command,
    searches.strategies,
    built_engines.engine_files,
    built_engines.current,
    repository.on_disk,
    searches.tokenizer_file,
    repository.python_caches,
)
DEEP: Sequence[Check] = (*ALL, built_engines.contents)
"""All checks, and the content of the engines, which takes as long as reading them."""


def lint(deployment: Deployment, checks: Sequence[Check] = ALL) -> list[Finding]:
    """Checks of a deployment: its mistakes, its doubtful parts, and what could not be checked."""
    return [finding for check in checks for finding in check(deployment)]


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether a deployment with these findings must not be built or served."""
    return any(finding.severity == "error" for finding in findings)
