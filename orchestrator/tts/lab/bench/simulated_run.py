"""What `tts simulate` and `tts simulate --placements` simulate: scenarios in the user's words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tts.base.errors import ConfigError
from tts.build.resolve import open_deployment
from tts.build.spec import Deployment, Gpu
from tts.build.started.memory import planned
from tts.build.tensorrt.memory_plan import check_pools
from tts.build.tensorrt.placements import Placed, Placement
from tts.engines.simulated import Sharing
from tts.prompting import Models
from tts.runs.config import Limits, RunConfig
from tts.runs.replay import Recording, Script, open_recording, read_recording
from tts.runs.statistics import quantile
from tts.scheduling import SpeculationName
from tts.search import AdaptiveVoteConfig, AutoConfig
from tts.strategies.catalog import find_strategy

from ..simulation.fleet import ROOM, as_simulated, on_own_cores, simulated_deployment
from ..simulation.scenario import Scenario, simulate
from ..simulation.workload import CRITIQUE_SPREAD, Workload, from_traces, lengths, typical
from ..tuning.tune import read_fits

FEWEST_PROBLEMS = 8
"""Problems of a simulated run, so that one long problem does not decide."""
ENOUGH_PROBLEMS = 64
"""Up to here a run has twice as many problems as run at a time: the end counts for less."""
NEAR = 0.02
"""Placements within this share of the best count as equally fast."""


@dataclass(frozen=True)
class SimulationOptions:
    """The simulation that the user asks for, without the schedules."""

    gpu: Gpu
    gpus: int
    sharing: Sharing
    strategy: str
    parameters: dict[str, Any]
    """The strategy's parameters that were given."""
    problems: int
    in_flight: int
    seed: int
    speculation: SpeculationName
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
    critique_tokens: int | None = None
    """The mean length of what a verifier writes; None: the usual pair's writes nothing."""


def scenario_of(options: SimulationOptions, names: Collection[str]) -> tuple[str, Scenario]:
    """The strategy's name and the scenario; raises a TtsError.

    `names` are those of the options that the user has set: a replay refuses what is not as
    recorded.
    """
    fits = read_fits(options.tuned) if options.tuned else None
    if options.deployment:
        deployment = _deployed(open_deployment(options.deployment), names, measured=bool(fits))
    else:
        deployment = simulated_deployment(
            options.gpu, options.gpus, critique_tokens=options.critique_tokens
        )
    strategy, seed, problems = options.strategy, options.seed, options.problems
    workload: Script
    if options.replay:
        settings = {name: getattr(options, name) for name in ("strategy", "seed") if name in names}
        config, workload = _recorded(options.replay, settings, options.parameters)
        _refuse_other_critiques(workload.models, deployment)
        strategy, seed = config.strategy, config.seed
        parameters = find_strategy(strategy).configure(
            config.parameters, context=workload.models.deployment.generator.max_seq_len
        )
        problems = min(problems, len(workload.problems))
    else:
        parameters = find_strategy(strategy).configure(
            options.parameters, context=deployment.generator.max_seq_len
        )
        workload = from_traces(options.traces) if options.traces else typical()
        workload = _with_critiques(workload, deployment, options.critique_tokens)
    made_up = options.replay is None
    if isinstance(parameters, AutoConfig) or (
        made_up and isinstance(parameters, AdaptiveVoteConfig)
    ):
        raise ConfigError(
            f"{strategy} cannot be simulated: it goes by the answers of "
            + ("the chains, and made-up text has none." if made_up else "earlier problems."),
            hint="Simulate a strategy whose work does not depend on answers, such as mcts or "
            "rebase; or measure this one on engines: tts bench.",
        )
    return strategy, Scenario(
        deployment,
        options.sharing,
        workload,
        parameters,
        problems,
        options.in_flight,
        seed,
        options.speculation,
        fits=fits,
        servers=options.replicas,
    )


def _with_critiques(
    workload: Workload, deployment: Deployment, mean: int | None = None
) -> Workload:
    """The workload with what the deployment's verifier writes, if it writes; raises ConfigError."""
    verifier = deployment.verifier_model
    if verifier.facts.writes:
        mean = mean or max(1, verifier.critique.max_tokens // ROOM)
        return replace(workload, critiques=lengths(mean, CRITIQUE_SPREAD))
    if mean:
        raise ConfigError(
            f"Deployment {deployment.name!r}: --critique-tokens is for a verifier that writes; its "
            f"format is {verifier.format}.",
            hint="Leave the option out, or set verifier.format to critique.",
        )
    return workload


def _refuse_other_critiques(models: Models, deployment: Deployment) -> None:
    """Raise ConfigError for a recorded run whose verifier wrote more or less for a score."""
    wrote, writes = models.deployment.critiques, deployment.critiques
    if wrote != writes:
        raise ConfigError(
            f"The recorded run's verifier wrote {wrote} critiques for a score; that of "
            f"{deployment.name!r} writes {writes}.",
            hint="Name a deployment with verifier.critique.samples as recorded; --critique-tokens "
            "has the usual pair write one.",
        )


def _recorded(
    path: Path, settings: dict[str, Any], parameters: dict[str, Any]
) -> tuple[RunConfig, Recording]:
    """A recorded run to be simulated; raises a TtsError naming what does not fit.

    `settings` and `parameters` are the options and the strategy's parameters that the user has set.
    """
    folder, config = open_recording(path)
    _refuse_others(folder, settings, parameters, config)
    if config.limits != Limits():
        raise ConfigError(
            f"The run recorded in {folder} had limits of tokens or time, which are not simulated.",
            hint="Record a run without limits.",
        )
    models = Models.load(open_deployment(config.deployment_source))
    return config, read_recording(folder, config, models)


def _refuse_others(
    folder: Path, settings: dict[str, Any], parameters: dict[str, Any], recorded: RunConfig
) -> None:
    """Raise ConfigError for the first of the options that is not as recorded."""
    record = {**recorded.parameters, **recorded.to_json()}
    for name, value in {**settings, **parameters}.items():
        if record.get(name) != value:
            raise ConfigError(
                f"{name} is {value!r}, but the run recorded in {folder} has "
                f"{record.get(name)!r}; a replay does what was recorded.",
                hint="Leave the option out.",
            )


def _deployed(deployment: Deployment, names: Collection[str], *, measured: bool) -> Deployment:
    """A deployment of the user's, as the simulation has it; raises ConfigError."""
    name, started = deployment.name, bool(deployment.started())
    deployment = planned(deployment)
    if not deployment.shares_engine:
        deployment.compiled_pair()
    if deployment.target == "openvino" or (started and deployment.gpu is None):
        if not measured:
            raise ConfigError(
                f"Deployment {name!r} is for CPUs; how long a step takes on this machine is in no "
                "data sheet.",
                hint=f"Measure it: tts tune {deployment.argument}, then tts simulate "
                f"{deployment.argument} --tuned RESULT",
            )
        return on_own_cores(as_simulated(deployment))
    for option in ("gpu", "gpus"):
        if option in names:
            raise ConfigError(
                f"Deployment {name!r} says itself which GPUs it is for: --{option} is for the pair "
                "that is simulated without a deployment.",
                hint="Change tensorrt in the file; --placements compares placements.",
            )
    if not started:
        check_pools(deployment)
    return as_simulated(deployment)


@dataclass(frozen=True)
class PlacedRun:
    """One placement at one concurrency. Every number is simulated."""

    placement: Placement
    concurrency: int
    problems_per_min: float
    median_s: float
    """Median seconds from the start of a problem to its result."""
    calls: float
    """Share of the time for which the orchestrator's process is busy with calls."""


@dataclass(frozen=True)
class PlacementAdvice:
    """The placement to take for these concurrencies, neighbours among those that were simulated."""

    placement: Placement
    concurrencies: tuple[int, ...]


def placed_scenario(placed: Placed, concurrency: int, n: int) -> Scenario:
    """Beam search with `concurrency` problems at a time, on all servers of the placement."""
    deployment = as_simulated(placed.deployment)
    parameters = find_strategy("beam-search").configure(
        {"n": n}, context=deployment.generator.max_seq_len
    )
    return Scenario(
        deployment,
        "time-sliced",
        _with_critiques(typical(), deployment),
        parameters,
        problems=max(FEWEST_PROBLEMS, concurrency, min(2 * concurrency, ENOUGH_PROBLEMS)),
        in_flight=concurrency,
        servers=placed.placement.servers,
    )


def simulate_placed(placed: Placed, concurrency: int, n: int) -> PlacedRun:
    """Simulate one placement under `decoupled`."""
    scenario = placed_scenario(placed, concurrency, n)
    outcome = simulate(scenario, "decoupled")
    return PlacedRun(
        placed.placement,
        concurrency,
        60 * scenario.problems / outcome.wall_s,
        quantile(outcome.latencies_s, 0.5) or 0.0,
        outcome.calls_s / outcome.wall_s,
    )


def simulate_placements(
    candidates: Sequence[Placed],
    concurrencies: Sequence[int],
    n: int,
    say: Callable[[PlacedRun], None] = lambda run: None,
) -> list[PlacedRun]:
    """All candidates at all concurrencies; `say` is called for each when it is done."""
    runs: list[PlacedRun] = []
    for concurrency in concurrencies:
        for placed in candidates:
            runs.append(simulate_placed(placed, concurrency, n))
            say(runs[-1])
    return runs


def advice_of(runs: Sequence[PlacedRun]) -> list[PlacementAdvice]:
    """The fastest placement from concurrency to concurrency.

    One stays the advice while it is within `NEAR` of the best: a change must be worth it.
    """
    advices: list[PlacementAdvice] = []
    for concurrency in sorted({run.concurrency for run in runs}):
        speed = {
            run.placement: run.problems_per_min for run in runs if run.concurrency == concurrency
        }
        best = max(speed, key=lambda placement: speed[placement])
        last = advices[-1] if advices else None
        if last and speed.get(last.placement, 0.0) >= (1 - NEAR) * speed[best]:
            advices[-1] = PlacementAdvice(last.placement, (*last.concurrencies, concurrency))
        else:
            advices.append(PlacementAdvice(best, (concurrency,)))
    return advices
