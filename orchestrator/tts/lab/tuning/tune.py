"""Tuning a deployment: record a run if none is given, measure both engines, propose budgets."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from tts.base.choices import ServerKind
from tts.base.errors import Interrupted, RunError
from tts.base.user_paths import is_there
from tts.build.deployment_edit import Field
from tts.build.openvino.threads import threads_in_words
from tts.build.started.memory import planned
from tts.datasets.load import load_problems
from tts.fleet.connecting import require_engines
from tts.prompting import Models
from tts.runs.config import RunConfig, read_run_config
from tts.runs.folder import locked, refuse_begun, write_json, writing
from tts.runs.log import read_events
from tts.session import AsyncSession
from tts.session.event_loop import interruptible
from tts.session.plan import Plan, check_lengths, findable, load_checked
from tts.session.run import OpenRun, open_run, unused_folder
from tts.session.strategy import choose

from ..campaign import Campaign
from ..observer import Observer
from .analysis import EngineResult, Proposal, analyse
from .measure import ROUNDS, Measured, measure
from .recorded_requests import (
    RecordedRequests,
    load_unit,
    loadable_generator,
    loadable_verifier,
    recorded_requests,
)
from .tune_file import RESULT, to_json

PROBLEMS = 8
"""Problems of the run that is recorded where none is given."""
LEAST_REQUESTS = 16
"""Requests to each engine that a run must hold."""


@dataclass(frozen=True)
class Tuned:
    """What `tune` found, and the file that keeps it."""

    engines: tuple[EngineResult, ...]
    file: Path
    interrupted: Interrupted | None
    """Whether the user stopped it before everything was measured."""
    threads: str | None = None
    """The engines' CPU threads in words; None where they are not this machine's."""

    @property
    def proposals(self) -> list[Proposal]:
        """The budgets that follow, for the engines with enough measurements.

        None if stopped: a budget from part of the rounds would look like one from all of them.
        """
        if self.interrupted:
            return []
        return [engine.proposal for engine in self.engines if engine.proposal]

    @property
    def changes(self) -> Mapping[Field, int]:
        """The proposed budgets that differ from those in the deployment file, by their fields."""
        return {p.field: p.value for p in self.proposals if p.value != p.present}


def tune(
    deployment: str,
    *,
    run: Path | None = None,
    dataset: str = "demo",
    seconds: float = 60.0,
    server: ServerKind | None = None,
    out: Path | None = None,
    observer: Observer,
) -> Tuned:
    """Measure both engines of a deployment, keep the result, and say what follows.

    `run` is the run whose requests are sent; without one, a short run on `dataset` is recorded
    first. `seconds` is the time to measure, both engines together. `server` is what runs the
    engines; None: what the deployment says. `out` is the result's folder; a new one under runs/ if
    None. Ctrl-C ends the measurements early: those made so far are kept and returned, and nothing
    is proposed. Raises a TtsError.
    """
    spec = load_checked(deployment).served_by(server)
    facts = planned(spec)
    facts.compiled_pair()
    if spec.engines():
        require_engines(spec, (), observer.say)
    models = Models.load(spec)
    on_this_cpu = spec.target == "openvino" and not spec.endpoints
    threads = threads_in_words(spec) if on_this_cpu else None
    folder = (out or unused_folder(f"{spec.name}-tune")).resolve()
    if is_there(folder / RESULT):
        raise RunError(f"{folder} already holds a tune result.", hint="Name another with --out.")
    refuse_begun(folder)
    recorded = read_requests(run, models) if run else None
    plan = _recording(deployment, models, dataset) if recorded is None else None
    source = run or folder / "run"
    measured: list[Measured] = []
    interrupted: Interrupted | None = None

    campaign = Campaign(observer, cold=False)

    async def record_and_measure(run: OpenRun | None) -> AsyncGenerator[tuple[str, OpenRun], None]:
        nonlocal recorded
        if run:
            observer.say(f"Recording a run of {len(run.plan.problems)} problems")
            yield "recording", run
            recorded = read_requests(source, models)
        assert recorded is not None
        observer.say(
            f"Replaying {len(recorded.generations):,} generator and "
            f"{len(recorded.scorings):,} verifier requests of {source}"
        )
        session = await campaign.session(spec)
        async with session.work():
            await measure_engines(session, recorded, seconds, measured, observer)

    with locked(folder), open_run(plan, source) if plan else nullcontext() as recording:
        try:
            interruptible(campaign.run(record_and_measure(recording)), observer.say)
        except Interrupted as stopped:
            if recorded is None or not any(engine.samples for engine in measured):
                raise
            interrupted = stopped
        assert recorded is not None  # it is there once something was measured
        engines = tuple(analyse(engine, facts) for engine in measured)
        result = to_json(facts, str(source), recorded, engines, stopped=bool(interrupted))
        if threads:
            result["threads"] = threads
        with writing(folder):
            write_json(folder / RESULT, result)
    return Tuned(engines, folder / RESULT, interrupted, threads)


def read_requests(run: Path, models: Models) -> RecordedRequests:
    """The requests of a run of this deployment; raises RunError."""
    config = read_run_config(run)
    spec = models.deployment
    if config.deployment != spec.name:
        raise RunError(
            f"The run in {run} is one of {config.deployment!r}, not of {spec.name!r}.",
            hint="Its token ids and lengths are those of other models: name a run of this "
            "deployment, or leave --run out to record one.",
        )
    recorded = recorded_requests(models, config, read_events(run))
    for role, requests in (("generator", recorded.generations), ("verifier", recorded.scorings)):
        if len(requests) < LEAST_REQUESTS:
            raise RunError(
                f"The run in {run} holds {len(requests)} requests to the {role}; "
                f"at least {LEAST_REQUESTS} are needed.",
                hint="Record one with: tts bench DEPLOYMENT --strategy beam-search",
            )
    return recorded


def _recording(deployment: str, models: Models, dataset: str) -> Plan:
    """The recording made if no run is given: a short run of beam search."""
    source, spec = findable(deployment), models.deployment
    config = RunConfig(deployment_source=source, dataset=findable(dataset), limit=PROBLEMS)
    problems = tuple(load_problems(dataset, limit=PROBLEMS))
    plan = Plan(config, spec, problems, choose(config.strategy, spec, {}))
    check_lengths(models, plan.problems)
    return plan


async def measure_engines(
    session: AsyncSession,
    recorded: RecordedRequests,
    seconds: float,
    into: list[Measured],
    observer: Observer,
) -> None:
    """Measure one engine after the other with a run's requests, adding to `into`.

    `seconds` are for both together. Raises EndpointError.
    """
    generator, verifier = session.replicas.pairs[0].endpoints  # the policies are a server's
    spec = planned(session.deployment)
    # salts must differ from those of earlier measurements on the same server
    first = random.randrange(1 << 20)
    for engine in (
        loadable_generator(generator, recorded, spec),
        loadable_verifier(verifier, recorded, spec),
    ):
        into.append(Measured(engine.role, engine.full_batch))
        observer.say(f"Measuring the {engine.role}'s throughput over load")
        observer.measuring(
            engine.role, load_unit(engine.role, spec), len(engine.loads) * (ROUNDS + 1)
        )
        await measure(engine, seconds / 2, into[-1], first=first, on_load=observer.at)
