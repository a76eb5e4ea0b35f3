"""The log of a TensorRT-LLM server's last start beside the deployment: what became of its KV pools.

A pool is the smaller of its planned tokens and what memory was free, and only the log says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tts.base import paths
from tts.build.spec import Deployment, Role
from tts.serving.server.triton import LOG
from tts.serving.server.triton_log import LogMatch, read_start_log

from .observation import Observation

_LOG_BYTES = 4_000_000
"""Bytes of a log that are read from its beginning, where a start is recorded."""
_SHORT = (
    "More memory was in use on its GPU than planned: stop what else runs there (nvidia-smi), or "
    "plan again (tts plan NAME --write), and start the server again."
)


def last_start(deployment: Deployment) -> Iterator[Observation]:
    """KV pools and longest sequences as the last start had them; nothing where no log has them."""
    try:
        with (paths.server_dir(deployment.name) / LOG).open("rb") as file:
            text = file.read(_LOG_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return
    lines = read_start_log(text.splitlines())
    specs = deployment.engines()
    # TensorRT-LLM rounds up to whole blocks
    pools = {
        role: -(-spec.kv_cache.tokens // spec.kv_cache.block_size) * spec.kv_cache.block_size
        for role, spec in specs.items()
    }
    lengths = {role: spec.max_seq_len for role, spec in specs.items()}
    for what, planned, forms in (
        ("KV pools", pools, {"pool": "tokens"}),
        ("longest sequences", lengths, {"blocks": "length", "shortened": "length"}),
    ):
        yield from _compared(f"{what} of the last start", planned, _numbers(lines, forms))


def _numbers(lines: list[LogMatch], forms: dict[str, str]) -> list[int]:
    """Each number of these forms once: no line says of which engine it is."""
    numbers = [each.numbers[forms[each.form]] for each in lines if each.form in forms]
    return list(dict.fromkeys(numbers))


def _compared(what: str, planned: Mapping[Role, int], logged: list[int]) -> Iterator[Observation]:
    if not logged:
        return
    in_words = " and ".join(f"{tokens:,} tokens" for tokens in logged)
    if set(logged) <= set(planned.values()):
        yield Observation(what, "ok", in_words)
        return
    planned_in_words = " and ".join(f"{tokens:,} ({role})" for role, tokens in planned.items())
    yield Observation(what, "note", f"{in_words}, where the file has {planned_in_words}", _SHORT)
