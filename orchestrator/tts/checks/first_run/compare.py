"""The log and the memory of a start beside the memory plan: expected, and found. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tts.build.spec import Deployment
from tts.build.tensorrt.engine_memory import TRANSFER, TRANSFER_SIZE, TRANSFER_VARIABLE
from tts.build.tensorrt.gpus import GIB
from tts.build.tensorrt.memory_plan import MemoryPlan
from tts.serving.server.triton_log import Seen

from ..observation import Observation

TOLERANCE = 0.02
"""Share by which a size may exceed its estimate: logs round, tensors are aligned."""
_SMALLER = (
    "The plan's estimate is too small: report it with this report. Until then, lower "
    "kv_cache.tokens by as much (tts plan NAME says bytes per token)."
)


def compare_log(
    deployment: Deployment, plan: MemoryPlan, seen: Sequence[Seen]
) -> list[Observation]:
    """Every number of a start's log that the plan predicts, next to the prediction."""
    ranks = [place.memory for gpu in plan.gpus for place in gpu.ranks]
    return [
        _pools(deployment, seen),
        _lengths(deployment, seen),
        _transfer(seen),
        _sizes("weights", [rank.weights for rank in ranks], _of(seen, "engine")),
        _sizes("activations", [rank.activations for rank in ranks], _of(seen, "activations")),
        _sizes(
            "decoder and runtime buffers",
            [rank.logits for rank in ranks],
            _of(seen, "decoder"),
            sum(_of(seen, "buffers")),
        ),
    ]


def compare_memory(
    deployment: Deployment, plan: MemoryPlan, before: Mapping[int, int], used: Mapping[int, int]
) -> list[Observation]:
    """The memory that each GPU has in use (bytes) when the server is ready, against the plan.

    `before` is the memory in use on each before the server was started.
    """
    observations = []
    for gpu in plan.gpus:
        planned = gpu.fixed + sum(
            deployment.engines()[place.role].kv_cache.tokens * place.memory.kv_bytes_per_token
            for place in gpu.ranks
        )
        what, expected = f"GPU {gpu.device}", f"at most {_gib(planned)} in use by the server"
        if gpu.device not in used:
            seen = Observation(what, "not here", "nvidia-smi does not tell", "", expected)
            observations.append(seen)
            continue
        others = before.get(gpu.device, 0)
        more = used[gpu.device] - others
        found = _gib(more) + (f", beside {_gib(others)} of others" if others else "")
        if more <= planned * (1 + TOLERANCE):
            seen = Observation(what, "ok", found, "", expected)
        elif more - planned <= plan.headroom:
            advice = (
                f"{_gib(more - planned)} more than planned, of the {_gib(plan.headroom)} that are "
                "left before a pool is cut short. Please report it."
            )
            seen = Observation(what, "note", found, advice, expected)
        else:
            seen = Observation(what, "wrong", found, _SMALLER, expected)
        observations.append(seen)
    return observations


def _pools(deployment: Deployment, seen: Sequence[Seen]) -> Observation:
    """The pools in the log, whose lines do not say of which engine they are."""
    what = "KV pools"
    wanted = {
        # TensorRT-LLM rounds up to whole blocks
        role: -(-spec.kv_cache.tokens // spec.kv_cache.block_size) * spec.kv_cache.block_size
        for role, spec in deployment.engines().items()
    }
    expected = " and ".join(f"{tokens:,} tokens ({role})" for role, tokens in wanted.items())
    pools = dict.fromkeys(line.numbers["tokens"] for line in seen if line.form == "pool")
    if not pools:
        return _no_line(what, expected, "Allocated ... GiB for max tokens in paged KV cache")
    found = " and ".join(f"{tokens:,} tokens" for tokens in pools)
    if any(tokens not in wanted.values() for tokens in pools):
        advice = (
            "A pool that is too small was cut short: more memory is in use on its GPU than "
            "planned. Look for other processes (nvidia-smi) and at the sizes below; else lower "
            "that engine's kv_cache.tokens to what was found, and report it. One that is too "
            "large is of another configuration: tts render NAME, then start the server again."
        )
        return Observation(what, "wrong", found, advice, expected)
    if missing := [role for role, tokens in wanted.items() if tokens not in pools]:
        advice = f"The log has no line for the {' and the '.join(missing)}: report it with the log."
        return Observation(what, "note", found, advice, expected)
    return Observation(what, "ok", found, "", expected)


def _lengths(deployment: Deployment, seen: Sequence[Seen]) -> Observation:
    lengths = {role: spec.max_seq_len for role, spec in deployment.engines().items()}
    what = "longest sequences"
    expected = " and ".join(f"{length:,} tokens ({role})" for role, length in lengths.items())
    there = [line.numbers["length"] for line in seen if line.form in ("blocks", "shortened")]
    if not there:
        return _no_line(what, expected, "Max KV cache blocks per sequence")
    found = " and ".join(f"{length:,} tokens" for length in dict.fromkeys(there))
    reduced = [line.numbers["length"] for line in seen if line.form == "shortened"]
    if short := reduced + [length for length in there if length not in lengths.values()]:
        advice = (
            f"The longest sequence was reduced to {min(short):,} tokens, as the pool does not hold "
            "one of full length: free the GPU, or plan again (tts plan NAME --write)."
        )
        return Observation(what, "wrong", found, advice, expected)
    return Observation(what, "ok", found, "", expected)


def _transfer(seen: Sequence[Seen]) -> Observation:
    what, expected = "KV transfer buffers", f"at most {TRANSFER / 2**20:g} MiB on each rank"
    sizes = _of(seen, "transfer")
    if not sizes:
        return _no_line(what, expected, "CacheTransBufferManager")
    found = f"{max(sizes) / 2**20:g} MiB"
    if max(sizes) <= TRANSFER:
        return Observation(what, "ok", found, "", expected)
    advice = (
        f"{TRANSFER_VARIABLE}={TRANSFER_SIZE} did not reach the engines, whose pools then are "
        "smaller. Please report it with the command that `tts serve NAME --dry-run` prints."
    )
    return Observation(what, "wrong", found, advice, expected)


def _sizes(what: str, planned: Sequence[int], sizes: Sequence[int], more: int = 0) -> Observation:
    """Sizes of all ranks together, or the largest ones where not each rank has a line."""
    if not sizes:
        return _no_line(what, _gib(sum(planned)), what)
    every = len(sizes) == len(planned)
    wanted = sum(planned) if every else max(planned)
    size = sum(sizes) + more if every else max(sizes)
    expected = f"at most {_gib(wanted)} ({'all ranks' if every else 'the largest rank'})"
    if size > wanted * (1 + TOLERANCE) + len(sizes) * 2**20:
        return Observation(what, "wrong", _gib(size), _SMALLER, expected)
    return Observation(what, "ok", _gib(size), "", expected)


def _of(seen: Iterable[Seen], form: str) -> list[int]:
    return [line.numbers["bytes"] for line in seen if line.form == form]


def _no_line(what: str, expected: str, form: str) -> Observation:
    advice = f"The log has no line of the known form ({form}): report it with the log."
    return Observation(what, "note", "not in the log", advice, expected)


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"
