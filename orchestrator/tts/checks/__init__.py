"""All about a deployment that can be checked without a GPU, before an hour of one is spent.

A check is a function that takes what a deployment is made from and yields findings; it does not
repeat what another check reports. To add one, write it and name it in a list: those before a
build are here, so that a build loads no others; the rest is in `after_build`.

| module | checks |
|---|---|
| models | both checkpoints, and that the two models belong together |
| build_settings | what is built by TensorRT-LLM, and how |
| started | engines that are started: memory, programs, options, ports |
| placement | GPUs, their memory, and the machine's |
| prompts | tokenizers, prompts, the verifier's dialogue, stop words, end tokens |
| searches | strategies, what guided decoding needs, how much is in flight at a time |
| after_build | built engines, model repository, manifests, calibration, the server's address |
| findings | not checks but what they report, and how they look at a path |
| machine | not a deployment but this machine: what `tts doctor` looks at |
| requirements | what a command needs of this machine |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tts.base.findings import Finding
from tts.build.inputs import Inputs
from tts.build.spec import Deployment

from . import models, placement, prompts, searches

Check = Callable[[Inputs], Iterable[Finding]]


def tensorrt(inputs: Inputs) -> Iterator[Finding]:
    """What TensorRT-LLM can build, for the targets that it serves."""
    if inputs.deployment.tensorrt is not None:
        from . import build_settings  # which brings the build for GPUs

        for check in build_settings.CHECKS:
            yield from check(inputs)


def started_engines(inputs: Inputs) -> Iterator[Finding]:
    """What can be known of engines before they are started."""
    if inputs.deployment.started():
        from . import started  # which brings the tables of engines

        for check in started.CHECKS:
            yield from check(inputs)


BEFORE_BUILD: Sequence[Check] = (
    started_engines,
    models.checkpoints,
    models.checkpoint_files,
    models.lengths,
    models.exchanged,
    models.verifier_length,
    models.labels,
    tensorrt,
    placement.gpu_numbers,
    placement.replicas,
    placement.host_cache,
    placement.memory,
    placement.machine_memory,
    models.function,
    models.command,
    searches.requests,
    searches.verifier_tokens,
    prompts.tokenizers,
    prompts.round_trip,
    prompts.end_tokens,
    prompts.prompt,
    prompts.thinking,
    prompts.dialogue,
    prompts.stop_words,
    searches.token_texts,
)


def lint(
    deployment: Deployment, checks: Sequence[Check] | None = None, inputs: Inputs | None = None
) -> list[Finding]:
    """Mistakes, doubts, and what could not be checked; by all checks but those of contents."""
    if checks is None:
        from .after_build import ALL

        checks = ALL
    inputs = inputs or Inputs(deployment)
    return [finding for check in checks for finding in check(inputs)]


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether a deployment with these findings must not be built or served."""
    return any(finding.severity == "error" for finding in findings)
