"""The file by which TensorRT-LLM's backend matches grammars against tokens (guided decoding)."""

from __future__ import annotations

from pathlib import Path

from tts.base import paths
from tts.build.spec import Deployment
from tts.build.token_texts import grammar_tokenizer
from tts.build.tokenizer import Tokenizer

FILE = "xgrammar_tokenizer_info.json"


def grammar_tokenizer_file(deployment: Deployment) -> Path | None:
    """Where the file of a deployment lies; None if its backend reads none.

    It is beside the generator's engine, which is brought into containers and clusters: for a
    ConfigMap it is too large.
    """
    if deployment.target != "tensorrt" or not deployment.generator.guided_decoding:
        return None
    return paths.engine_dir(deployment.name, "generator") / FILE


def write_grammar_tokenizer(deployment: Deployment) -> None:
    """Write the file if the engine that it is for is built here; raises CheckpointError."""
    file = grammar_tokenizer_file(deployment)
    if file is None or not file.parent.is_dir():
        return
    text = grammar_tokenizer(Tokenizer(deployment.generator.tokenizer_folder))
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        temporary = file.with_name(f".{FILE}.new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
