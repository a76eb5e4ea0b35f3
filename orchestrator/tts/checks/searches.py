"""Checks of a deployment's search settings: strategies, guided decoding, work in flight."""

from __future__ import annotations

from collections.abc import Iterator

from tts.base.errors import CheckpointError
from tts.base.findings import Finding
from tts.build.inputs import Inputs
from tts.build.spec import GeneratorSpec, VerifierSpec
from tts.build.token_texts import guide_texts

from .findings import doubtful, refused
from .prompts import tokenizer_of

_GUIDED = "generator.guided_decoding"
_QUEUE = "the rest waits in the engine's queue, where the orchestrator's priorities end"


def strategies(inputs: Inputs) -> Iterator[Finding]:
    """Every block of `strategies` names a strategy, with parameters that it has and can have."""
    # imported here: it brings every strategy, and nothing else in this module needs one
    from tts.strategies.parameters import block_problems

    for where, what in block_problems(inputs.deployment):
        yield Finding(
            what.removesuffix("."),
            where,
            "every benchmark and every solve on this deployment would be refused",
            "Correct it, or leave it out: then the strategy's own default holds.",
        )


def token_texts(inputs: Inputs) -> Iterator[Finding]:
    """The texts of the generator's tokens are known, and can spell what a grammar asks for."""
    if not inputs.deployment.generator.guided_decoding:
        return
    if tokenizer := tokenizer_of(inputs.roles["generator"]):
        try:
            guide_texts(tokenizer)
        except CheckpointError as error:
            yield refused(
                error, inputs.deployment, _GUIDED, "grammars are matched with the tokens' texts"
            )


def requests(inputs: Inputs) -> Iterator[Finding]:
    """No more requests on the wire than the generator runs at a time."""
    spec = inputs.deployment.generator
    if not isinstance(spec, GeneratorSpec):
        return  # how many it runs at a time is known to whoever started it
    replicas = len(spec.placement.replicas)
    most = spec.max_batch_size * replicas
    if spec.in_flight_requests > most:
        yield doubtful(
            f"is {spec.in_flight_requests}, but max_batch_size{_times(replicas)} is {most}",
            "generator.in_flight_requests",
            _QUEUE,
            f"Set generator.in_flight_requests to {most}, or raise generator.max_batch_size.",
        )


def verifier_tokens(inputs: Inputs) -> Iterator[Finding]:
    """Verifier tokens on the wire: at least an engine step, at most what the engine runs."""
    spec = inputs.deployment.verifier
    if not isinstance(spec, VerifierSpec) or spec.in_flight_tokens is None:
        return
    where, replicas = "verifier.in_flight_tokens", len(spec.placement.replicas)
    least = spec.max_num_tokens * replicas
    # max_batch_size requests of full length are the most that an engine has active
    most = spec.max_batch_size * spec.max_seq_len * replicas
    if spec.in_flight_tokens < min(least, most):
        yield doubtful(
            f"is {spec.in_flight_tokens}, but max_num_tokens{_times(replicas)} is {least}",
            where,
            "no step of the verifier can be full, and memory is reserved for full ones",
            f"Raise verifier.in_flight_tokens to at least {least}, or lower "
            "verifier.max_num_tokens; `tts tune` measures how much is needed.",
        )
    elif spec.in_flight_tokens > most:
        yield doubtful(
            f"is {spec.in_flight_tokens}, but max_batch_size x max_seq_len{_times(replicas)} is "
            f"{most}",
            where,
            _QUEUE,
            f"Set verifier.in_flight_tokens to at most {most}; `tts tune` measures how much is "
            "needed.",
        )


def _times(replicas: int) -> str:
    return " x replicas" if replicas > 1 else ""
