"""All about a deployment that can be checked without a GPU, before an hour of one is spent.

A check is a function that takes what a deployment is made from and yields findings; it does not
repeat what another check reports. To add one, write it and name it in a list below.

| module | checks |
|---|---|
| checkpoints | that both checkpoints are there, of files, whole, and long enough for max_seq_len |
| model_pair | that the two models belong together, and the verifier's format to its labels |
| build_settings | what is built and how |
| placement | GPUs, their memory, and the machine's |
| prompts | tokenizers, prompts, the verifier's dialogue, stop words, end tokens |
| searches | strategies, what guided decoding needs, how much is in flight at a time |
| repository | the Triton model repository: as rendered, and on disk |
| server_start | where a server would listen |
| manifests | docker compose and Kubernetes, as they lie on disk |
| built_engines | the engines on disk |
| findings | how a check reports a finding, and the look at a path |
| machine | not a deployment but this machine: what `tts doctor` looks at |
| drafting | what `tts init` has to know of this machine, checkpoints and servers |
| requirements | what a command needs of this machine |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tts.build.inputs import Inputs
from tts.build.spec import Deployment
from tts.serving.repository.check import Finding

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

Check = Callable[[Inputs], Iterable[Finding]]

BEFORE_BUILD: Sequence[Check] = (
    checkpoints.checkpoints,
    checkpoints.checkpoint_files,
    checkpoints.lengths,
    model_pair.exchanged,
    model_pair.own_likelihood,
    model_pair.verifier_length,
    model_pair.labels,
    build_settings.buildable,
    build_settings.calibration,
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
    searches.strategies,
    built_engines.engine_files,
    built_engines.current,
    repository.on_disk,
    searches.tokenizer_file,
)
DEEP: Sequence[Check] = (*ALL, built_engines.contents)
"""All checks, and the content of the engines, which takes as long as reading them."""


def lint(
    deployment: Deployment, checks: Sequence[Check] = ALL, inputs: Inputs | None = None
) -> list[Finding]:
    """Checks of a deployment: its mistakes, its doubtful parts, and what could not be checked.

    `inputs` are its own where others use them afterwards: each is opened once.
    """
    inputs = inputs or Inputs(deployment)
    return [finding for check in checks for finding in check(inputs)]


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether a deployment with these findings must not be built or served."""
    return any(finding.severity == "error" for finding in findings)
