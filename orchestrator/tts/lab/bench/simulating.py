"""What `tts simulate` is asked for, in the user's words, and the scenario it makes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts.build.errors import ConfigError
from tts.build.spec import Deployment, Gpu, load_deployment
from tts.build.tensorrt.memory_plan import check_pools
from tts.engines.simulated import Sharing
from tts.scheduling import SpeculationName
from tts.strategies.catalog import find_strategy

from ..simulation.fleet import ServerGroup
from ..simulation.pairs import as_simulated, on_own_cores, simulated_deployment
from ..simulation.scenario import Scenario
from ..simulation.workload import from_traces, typical
from ..tuning.fit import read_fits
from .replaying import recorded_work

CALL_MS = 0.5
"""What the orchestrator's processor is assumed to spend on a call."""


@dataclass(frozen=True)
class SimulationOptions:
    """What the user asks to be simulated, but for the schedules."""

    gpu: Gpu
    gpus: int
    sharing: Sharing
    strategy: str
    parameters: dict[str, Any]
    """Of the strategy, those that were given."""
    problems: int
    in_flight: int
    seed: int
    speculation: SpeculationName
    call_ms: float | None = None
    """None: CALL_MS, or 0 with `tuned`, whose measurements include it."""
    traces: Path | None = None
    """Recorded chains, whose statistics the workload has."""
    replay: Path | None = None
    """A recorded run, which is simulated as it was recorded."""
    tuned: Path | None = None
    """A tune result that step times are fitted to."""
    deployment: str | None = None
    """A file or a bundled name; None: the usual pair on `gpus` of kind `gpu`."""
    replicas: int = 1
    """Servers, each with GPUs of its own."""


def scenario_of(wanted: SimulationOptions, given: Collection[str]) -> tuple[str, Scenario]:
    """The strategy's name and the scenario; raises a TtsError.

    `given` are the names of the options that the user gave: a replay refuses what is not as
    recorded.
    """
    fits = read_fits(wanted.tuned) if wanted.tuned else None
    if wanted.deployment:
        deployment = _deployed(load_deployment(wanted.deployment), given, measured=bool(fits))
    else:
        deployment = simulated_deployment(wanted.gpu, wanted.gpus)
    call_ms = wanted.call_ms
    if call_ms is None:
        call_ms = 0.0 if fits else CALL_MS
    strategy, seed, problems = wanted.strategy, wanted.seed, wanted.problems
    if wanted.replay:
        asked = {name: getattr(wanted, name) for name in ("strategy", "seed") if name in given}
        recorded = recorded_work(wanted.replay, asked, wanted.parameters)
        strategy, parameters, seed = recorded.strategy, recorded.parameters, recorded.seed
        problems = min(problems, len(recorded.problems))
        workload = recorded.script
    else:
        recorded = None
        parameters = find_strategy(strategy).configure(
            wanted.parameters, context=deployment.generator.max_seq_len
        )
        workload = from_traces(wanted.traces) if wanted.traces else typical()
    return strategy, Scenario(
        deployment,
        wanted.sharing,
        workload,
        parameters,
        problems,
        wanted.in_flight,
        seed,
        wanted.speculation,
        call_ms / 1e3,
        recorded=recorded,
        fits=fits,
        whole_head=wanted.deployment is not None,
        groups=(ServerGroup(deployment, wanted.replicas),) if wanted.replicas > 1 else (),
    )


def _deployed(deployment: Deployment, given: Collection[str], *, measured: bool) -> Deployment:
    """A deployment of the user's, as the simulation has it; raises ConfigError."""
    name = deployment.name
    if deployment.target == "openvino":
        if not measured:
            raise ConfigError(
                f"Deployment {name!r}: target is 'openvino'; how long a step takes on this machine "
                "is in no data sheet.",
                hint=f"Measure it: tts tune {deployment.named}, then tts simulate "
                f"{deployment.named} --tuned RESULT",
            )
        return on_own_cores(as_simulated(deployment))
    for option in ("gpu", "gpus"):
        if option in given:
            raise ConfigError(
                f"Deployment {name!r} says itself which GPUs it is for: --{option} is for the pair "
                "that is simulated without a deployment.",
                hint="Change tensorrt in the file; `tts plan --concurrency` compares placements.",
            )
    check_pools(deployment)
    return as_simulated(deployment)
