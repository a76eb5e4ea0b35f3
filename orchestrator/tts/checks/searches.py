"""Checks of a deployment's search settings: strategies, guided decoding, work in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from tts.build.errors import CheckpointError
from tts.build.spec import Deployment, GeneratorSpec, VerifierSpec
from tts.build.token_texts import guide_texts
from tts.build.verifiers.dialogue import verifier_dialogue
from tts.serving.repository.check import Finding
from tts.serving.repository.guided import grammar_tokenizer_file
from tts.strategies.parameters import block_problems

from .findings import refused
from .prompts import tokenizer_of

_GUIDED = "generator.guided_decoding"
_QUEUE = "the rest waits in the engine's queue, where the orchestrator's priorities end"


def strategies(deployment: Deployment) -> Iterator[Finding]:
    """Every block of `strategies` names a strategy, with parameters that it has and can have."""
    for where, what in block_problems(deployment):
        yield Finding(
            what.removesuffix("."),
            where,
            "every benchmark and every solve on this deployment would be refused",
            "Correct it, or leave it out: then the strategy's own default holds.",
        )


def token_texts(deployment: Deployment) -> Iterator[Finding]:
    """The texts of the generator's tokens are known, and can spell what a grammar asks for."""
    if not deployment.generator.guided_decoding:
        return
    if tokenizer := tokenizer_of(deployment.generator):
        try:
            guide_texts(tokenizer)
        except CheckpointError as error:
            yield refused(error, deployment, _GUIDED, "grammars are matched with the tokens' texts")


def tokenizer_file(deployment: Deployment) -> Iterator[Finding]:
    """The file from which TensorRT-LLM's backend reads them is beside the engine."""
    file = grammar_tokenizer_file(deployment)
    if file and (file.parent / "config.json").is_file() and not file.is_file():
        yield Finding(
            f"{file.name} is missing",
            str(file),
            "the generator's model names it, and does not load without it",
            f"Run: tts render {deployment.named}",
        )


def requests(deployment: Deployment) -> Iterator[Finding]:
    """No more requests on the wire than the generator runs at a time."""
    spec = deployment.generator
    if not isinstance(spec, GeneratorSpec):
        return  # how many it runs at a time is known to whoever started it
    replicas = len(spec.placement.replicas)
    most = spec.max_batch_size * replicas
    if spec.in_flight_requests > most:
        yield Finding(
            f"is {spec.in_flight_requests}, but max_batch_size{_times(replicas)} is {most}",
            "generator.in_flight_requests",
            _QUEUE,
            f"Set generator.in_flight_requests to {most}, or raise generator.max_batch_size.",
            "warning",
        )


def verifier_tokens(deployment: Deployment) -> Iterator[Finding]:
    """Verifier tokens on the wire: at least an engine step, at most what the engine runs."""
    spec = deployment.verifier
    if not isinstance(spec, VerifierSpec):
        return
    where, replicas = "verifier.in_flight_tokens", len(spec.placement.replicas)
    least = spec.max_num_tokens * replicas
    # max_batch_size requests of full length are the most that an engine has active
    most = spec.max_batch_size * spec.max_seq_len * replicas
    if spec.in_flight_tokens < min(least, most):
        yield Finding(
            f"is {spec.in_flight_tokens}, but max_num_tokens{_times(replicas)} is {least}",
            where,
            "no step of the verifier can be full, and memory is reserved for full ones",
            f"Raise verifier.in_flight_tokens to at least {least}, or lower "
            "verifier.max_num_tokens; `tts tune` measures how much is needed.",
            "warning",
        )
    elif spec.in_flight_tokens > most:
        yield Finding(
            f"is {spec.in_flight_tokens}, but max_batch_size x max_seq_len{_times(replicas)} is "
            f"{most}",
            where,
            _QUEUE,
            f"Set verifier.in_flight_tokens to at most {most}; `tts tune` measures how much is "
            "needed.",
            "warning",
        )


def verifier_batches(deployment: Deployment) -> Iterator[Finding]:
    """A batch of scores is more than any single request, and fits into the budget."""
    spec = deployment.verifier
    if (tokens := spec.group_tokens) is None:
        return
    where = "verifier.group_tokens"
    if tokens > spec.in_flight_tokens:
        yield Finding(
            f"is {tokens}, but in_flight_tokens is {spec.in_flight_tokens}",
            where,
            "a batch that has been waited for is then sent in parts, as no more may be in flight",
            f"Set verifier.group_tokens to at most {spec.in_flight_tokens}.",
            "warning",
        )
    elif tokens <= (smallest := _smallest_request(deployment)):
        yield Finding(
            f"is {tokens}, but every request has more than {smallest} tokens by itself",
            where,
            "no request is ever held back, so scores are not batched",
            "Raise verifier.group_tokens to the tokens of several requests, or leave it out.",
            "warning",
        )


def _smallest_request(deployment: Deployment) -> int:
    """Tokens that every request to the verifier exceeds: those of a dialogue without any text."""
    if tokenizer := tokenizer_of(deployment.verifier_model):
        with suppress(CheckpointError):  # the check of the tokenizers reports it
            return len(verifier_dialogue(tokenizer, deployment.verifier_model).first("", ""))
    return 1


def _times(replicas: int) -> str:
    return " x replicas" if replicas > 1 else ""
