"""CPU threads of a pair's engines: as its deployment states them, or the cores divided.

Both engines work at the same time, so the cores are divided like a search's work. Each new token is
computed once by either engine: what came before it is in their caches. A token is multiplied with
an engine's weights, all but the embedding; and each weight of the generator takes GENERATED times
as long as one of the verifier, as the generator works on a token of each request at a time, and
some of what it writes is never scored.

Threads decide how fast an engine is, and the last bit of what it computes:
docs/guides/tune.md#threads.
"""

from __future__ import annotations

from collections.abc import Mapping

from tts.base.machine_limits import usable_cores

from ..inputs import EngineInputs, Inputs
from ..spec import Deployment, Role
from ..tensorrt.engine_memory import parameters

GENERATED = 3
"""How much longer a search takes per weight of the generator than per weight of the verifier.

Measured on beam search of 25M and 100M parameters: 3.3 (benchmarks/README.md#schedules).
"""
LEAST_WEIGHTS = 2_000_000
"""Weights for each thread, at least: an estimate.

Below it a layer's matrices take a thread a few microseconds, as long as handing them out.
"""


def threads_of(
    deployment: Deployment, cores: int | None = None, inputs: Inputs | None = None
) -> Mapping[Role, int]:
    """Threads of each engine on this machine, or on `cores`; raises CheckpointError."""
    specs = deployment.engines()
    stated = {role: spec.threads for role, spec in specs.items()}
    if all(stated.values()):
        return {role: count for role, count in stated.items() if count}
    cores = cores or usable_cores()
    engines = (inputs or Inputs(deployment)).engines
    weights = {role: _weights(engine) for role, engine in engines.items()}
    if len(weights) == 1:
        return {role: max(1, min(cores, each // LEAST_WEIGHTS)) for role, each in weights.items()}
    both_write = engines["verifier"].spec.writes
    return divide(cores, weights, stated, both_write=both_write)


def divide(
    cores: int,
    weights: Mapping[Role, int],
    stated: Mapping[Role, int | None],
    *,
    both_write: bool = False,
) -> Mapping[Role, int]:
    """Threads by weights per token; `both_write`: the verifier reads each token alone, too."""
    work = weights["generator"] * (1 if both_write else GENERATED)
    share = round(cores * work / (work + weights["verifier"]))
    most = {role: max(1, each // LEAST_WEIGHTS) for role, each in weights.items()}
    generator = stated["generator"]
    if generator is None:
        rest = cores - (stated["verifier"] or 1)
        share = rest if stated["verifier"] else share
        generator = max(1, min(share, rest, most["generator"]))
    verifier = stated["verifier"] or max(1, min(cores - generator, most["verifier"]))
    return {"generator": generator, "verifier": verifier}


def threads_in_words(deployment: Deployment) -> str:
    """`generator 6 (default), verifier 10 (stated); 16 cores`; raises CheckpointError."""
    specs = deployment.engines()
    parts = ", ".join(
        f"{role} {count} ({'stated' if specs[role].threads else 'default'})"
        for role, count in threads_of(deployment).items()
    )
    cores = usable_cores()
    return f"{parts}; {cores} core{'s' * (cores > 1)}"


def _weights(inputs: EngineInputs) -> int:
    """The weights that one token is multiplied with: a verifier's head has a row for each label."""
    counts = parameters(inputs.shape)
    return counts.active + (counts.head if inputs.spec.writes else 0)
