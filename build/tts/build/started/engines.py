"""The engines that can be started, by target, and the names of their options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files

from ..spec import StartedTarget
from . import llama_cpp, sglang, trtllm_serve, vllm
from .engine import Engine

ENGINES: Mapping[StartedTarget, Engine] = {
    module.ENGINE.target: module.ENGINE for module in (vllm, sglang, llama_cpp, trtllm_serve)
}


def unknown_options(target: StartedTarget, words: Sequence[str]) -> list[str]:
    """Words of a command line that look like options and are none of the engine's version."""
    names = [word.partition("=")[0] for word in words if word.startswith("--")]
    return [name for name in names if not _options()[target] & set(_spellings(name))]


def _spellings(name: str) -> Iterator[str]:
    """The name as a parser's record may have it: vLLM reads --no-X, fields of JSON and _ for -."""
    option = name.partition(".")[0]  # --compilation-config.mode
    yield from (option, option.replace("_", "-"), option.replace("--no-", "--", 1))


def option_names(target: StartedTarget) -> Sequence[str]:
    """The options of an engine."""
    return sorted(_options()[target])


@cache
def _options() -> Mapping[StartedTarget, frozenset[str]]:
    """Options by target, as each engine's own parser names them (`scripts/run check_commands`)."""
    text = (files(__package__) / "options.json").read_text(encoding="utf-8")
    return {target: frozenset(names.split()) for target, names in json.loads(text).items()}
