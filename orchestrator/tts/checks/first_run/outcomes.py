"""What steps of a first run come to; its log and memory in use against the memory plan. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tts.build.spec import Deployment, Role
from tts.build.tensorrt.engine_memory import (
    TRANSFER,
    TRANSFER_SIZE,
    TRANSFER_VARIABLE,
)
from tts.build.tensorrt.gpus import GIB
from tts.build.tensorrt.memory_plan import MemoryPlan
from tts.serving.server.triton_log import Seen

State = Literal["ok", "note", "wrong", "not here"]

AS_EXPECTED, DIFFERS, NOT_HERE = 0, 1, 3
"""Exit codes of a first run; 2 is a wrong option or file, as everywhere."""


@dataclass(frozen=True)
class Outcome:
    """One thing that was looked at or done."""

    what: str
    state: State
    """note: doubtful, and no reason to stop. not here: it cannot be done or seen here."""
    expected: str
    found: str
    advice: str = ""


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """1 if anything is wrong, else 3 if not everything could be done here, else 0."""
    states = {outcome.state for outcome in outcomes}
    return DIFFERS if "wrong" in states else NOT_HERE if "not here" in states else AS_EXPECTED


TOLERANCE = 0.02
"""Share by which a size may exceed its estimate: logs round, tensors are aligned."""
_ALIKE = 0.1
"""Two numbers of bytes per token count as equal up to this difference of their logarithms."""
_REPORT = "The plan's estimate is too small: report it with this report. Until then, "
_SMALLER = "lower kv_cache.tokens by as much (tts plan NAME says bytes per token)."


def compare_log(deployment: Deployment, plan: MemoryPlan, seen: Sequence[Seen]) -> list[Outcome]:
    """Every number of a start's log that the plan predicts, next to the prediction."""
    ranks = [place.memory for gpu in plan.gpus for place in gpu.ranks]
    return [
        *(_pool(deployment, role, found) for role, found in _pools(deployment, plan, seen).items()),
        _blocks(deployment, seen),
        _transfer(seen),
        _sizes("weights", [rank.weights for rank in ranks], _of(seen, "engine"), 0),
        _sizes("activations", [rank.activations for rank in ranks], _of(seen, "activations"), 0),
        _sizes(
            "decoder and runtime buffers",
            [rank.logits for rank in ranks],
            _of(seen, "decoder"),
            sum(_of(seen, "buffers")),
        ),
    ]


def compare_memory(
    deployment: Deployment, plan: MemoryPlan, before: Mapping[int, int], used: Mapping[int, int]
) -> list[Outcome]:
    """The memory that each GPU has in use (bytes) when the server is ready, against the plan.

    `before` is the memory in use on each before the server was started.
    """
    outcomes = []
    for gpu in plan.gpus:
        planned = gpu.fixed + sum(
            deployment.engines()[place.role].kv_cache.tokens * place.memory.kv_bytes_per_token
            for place in gpu.ranks
        )
        what, expected = f"GPU {gpu.device}", f"at most {_gib(planned)} in use by the server"
        if gpu.device not in used:
            found = "nvidia-smi does not tell"
            outcomes.append(Outcome(what, "not here", expected, found))
            continue
        more = used[gpu.device] - before.get(gpu.device, 0)
        others = f", beside {_gib(before[gpu.device])} of others" * (before.get(gpu.device, 0) > 0)
        found = _gib(more) + others
        if more <= planned * (1 + TOLERANCE):
            outcomes.append(Outcome(what, "ok", expected, found))
        elif more - planned <= plan.headroom:
            outcomes.append(
                Outcome(
                    what,
                    "note",
                    expected,
                    found,
                    f"{_gib(more - planned)} more than planned, of the {_gib(plan.headroom)} that "
                    "are left before a pool is cut short. Please report it.",
                )
            )
        else:
            outcomes.append(Outcome(what, "wrong", expected, found, _REPORT + _SMALLER))
    return outcomes


def _pools(deployment: Deployment, plan: MemoryPlan, seen: Sequence[Seen]) -> dict[Role, list[int]]:
    """Tokens of the pools in a log by their engine, which the lines do not name.

    A pool of exactly the size that an engine asks for is taken for its own. Any other is identified
    by its bytes per token; if those are equal, it goes to the engine that has none of its size yet.
    """
    roles: tuple[Role, ...] = get_args(Role)
    found: dict[Role, list[int]] = {role: [] for role in roles}
    others = []
    for line in seen:
        if line.form == "pool":
            tokens = line.numbers["tokens"]
            exact = [role for role in roles if tokens == _whole(deployment, role)]
            if exact:
                found[exact[0]].append(tokens)
            else:
                others.append(line)
    own = {role for role in roles if found[role]}
    for line in others:
        misfits = {role: _misfit(line, plan, role) for role in roles}
        alike = [role for role in roles if misfits[role] < min(misfits.values()) + _ALIKE]
        found[min(alike, key=lambda role: role in own)].append(line.numbers["tokens"])
    return found


def _misfit(line: Seen, plan: MemoryPlan, role: Role) -> float:
    """How far the bytes per token of a pool are from an engine's: the ratio's logarithm."""
    each = max(rank.kv_bytes_per_token for rank in plan.engines[role].ranks)
    tokens, size = (max(1, line.numbers[name]) for name in ("tokens", "bytes"))
    return abs(math.log(size / (tokens * each)))


def _pool(deployment: Deployment, role: Role, found: Sequence[int]) -> Outcome:
    wanted = _whole(deployment, role)
    what, expected = f"KV pool of the {role}", f"{wanted:,} tokens"
    if not found:
        return _no_line(what, expected, "Allocated ... GiB for max tokens in paged KV cache")
    told = ", ".join(f"{tokens:,} tokens" for tokens in dict.fromkeys(found))
    if min(found) < wanted:
        advice = (
            f"The pool was cut short by {wanted - min(found):,} tokens: more memory is in use on "
            "its GPU than planned. Look for other processes (nvidia-smi) and at the sizes below; "
            f"else lower {role}.kv_cache.tokens to what was found, and report it."
        )
        return Outcome(what, "wrong", expected, told, advice)
    if max(found) > wanted:
        advice = "The server has another configuration: tts render NAME, then start it again."
        return Outcome(what, "wrong", expected, told, advice)
    return Outcome(what, "ok", expected, told)


def _blocks(deployment: Deployment, seen: Sequence[Seen]) -> Outcome:
    specs = deployment.engines()
    blocks = {role: spec.kv_cache.blocks for role, spec in specs.items()}
    lengths = {role: spec.max_seq_len for role, spec in specs.items()}
    what = "blocks and sequence length"
    expected = " and ".join(
        f"{blocks[role]:,} blocks for sequences of {lengths[role]:,} ({role})" for role in specs
    )
    lines = [line.numbers for line in seen if line.form == "blocks"]
    shortened = [line.numbers["length"] for line in seen if line.form == "shortened"]
    if not lines and not shortened:
        return _no_line(what, expected, "Max KV cache blocks per sequence")
    found = " and ".join(f"{n['blocks']:,} blocks for sequences of {n['length']:,}" for n in lines)
    short = [n["length"] for n in lines if n["length"] < min(lengths.values())] + shortened
    if short:
        advice = (
            f"The longest sequence was reduced to {min(short):,} tokens, as the pool does not hold "
            "one of full length: free the GPU, or plan again (tts plan NAME --write)."
        )
        return Outcome(what, "wrong", expected, found or f"reduced to {min(short):,}", advice)
    if any(n["blocks"] not in blocks.values() for n in lines):
        return Outcome(what, "wrong", expected, found, "See the KV pools.")
    return Outcome(what, "ok", expected, found)


def _transfer(seen: Sequence[Seen]) -> Outcome:
    what, expected = "KV transfer buffers", f"at most {TRANSFER / 2**20:g} MiB on each rank"
    found = _of(seen, "transfer")
    if not found:
        return _no_line(what, expected, "CacheTransBufferManager")
    told = f"{max(found) / 2**20:g} MiB"
    if max(found) > TRANSFER:
        advice = (
            f"{TRANSFER_VARIABLE}={TRANSFER_SIZE} did not reach the engines, whose pools then are "
            "smaller. Please report it with the command that `tts serve NAME --dry-run` prints."
        )
        return Outcome(what, "wrong", expected, told, advice)
    return Outcome(what, "ok", expected, told)


def _sizes(what: str, planned: Sequence[int], found: Sequence[int], more: int) -> Outcome:
    """Sizes of all ranks together, or the largest ones where not each rank has a line."""
    if not found:
        return _no_line(what, _gib(sum(planned)), what)
    every = len(found) == len(planned)
    wanted = sum(planned) if every else max(planned)
    size = sum(found) + more if every else max(found)
    which = "all ranks" if every else "the largest rank"
    expected, told = f"at most {_gib(wanted)} ({which})", _gib(size)
    if size > wanted * (1 + TOLERANCE) + len(found) * 2**20:
        return Outcome(what, "wrong", expected, told, _REPORT + _SMALLER)
    return Outcome(what, "ok", expected, told)


def _of(seen: Iterable[Seen], form: str) -> list[int]:
    return [line.numbers["bytes"] for line in seen if line.form == form]


def _whole(deployment: Deployment, role: Role) -> int:
    """Tokens of the blocks that the deployment asks for: TensorRT-LLM rounds up."""
    cache = deployment.engines()[role].kv_cache
    return -(-cache.tokens // cache.block_size) * cache.block_size


def _no_line(what: str, expected: str, form: str) -> Outcome:
    advice = f"The log has no line of the known form ({form}): report it with the log."
    return Outcome(what, "note", expected, "not in the log", advice)


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"
