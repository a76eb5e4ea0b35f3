"""Checks of what a deployment says about searches: strategies, and guided decoding."""

from __future__ import annotations

from collections.abc import Iterator

from tts.build.errors import CheckpointError
from tts.build.spec import Deployment
from tts.build.token_texts import guide_texts
from tts.serving.contract import Finding
from tts.serving.repository.guided import grammar_tokenizer_file
from tts.strategies.parameters import block_problems

from .findings import refused
from .prompts import tokenizer_of


def strategies(deployment: Deployment) -> Iterator[Finding]:
    """Every block of `strategies` names a strategy, with parameters that it has and can have."""
    for where, what in block_problems(deployment):
        yield Finding(
            what.removesuffix("."),
            where,
            "every benchmark and every solve on this deployment would be refused",
            "Correct it, or leave it out: then the strategy's own default holds.",
        )


WHERE = "generator.guided_decoding"


def token_texts(deployment: Deployment) -> Iterator[Finding]:
    """The texts of the generator's tokens are known, and can spell what a grammar asks for."""
    if not deployment.generator.guided_decoding:
        return
    if tokenizer := tokenizer_of(deployment.generator):
        try:
            guide_texts(tokenizer)
        except CheckpointError as error:
            yield refused(error, deployment, WHERE, "grammars are matched with the tokens' texts")


def tokenizer_file(deployment: Deployment) -> Iterator[Finding]:
    """The file that TensorRT-LLM's backend reads them from lies beside the engine."""
    file = grammar_tokenizer_file(deployment)
    if file and (file.parent / "config.json").is_file() and not file.is_file():
        yield Finding(
            f"{file.name} is missing",
            str(file),
            "the generator's model names it, and does not load without it",
            f"Run: tts deploy {deployment.named}",
        )
