"""Tuning a deployment: record a run if none is given, measure both engines, propose budgets."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tts.bench.request import Wanted, load_checked, plan_with, unused_folder
from tts.bench.run import execute
from tts.bench.serving import interruptible, serving, watched
from tts.build.builder import require_current
from tts.build.deployment_edit import Field
from tts.build.errors import Interrupted, RunError
from tts.build.spec import Deployment
from tts.checks.requirements import require_gpu
from tts.datasets.load import load_problems
from tts.endpoints.triton import TritonConnection, TritonGenerator, TritonVerifier
from tts.prompting.context import Models
from tts.runlog.folder import CONFIG, cannot_write, read_config, write_json
from tts.runlog.log import read_events
from tts.strategies.catalog import find_strategy
from tts.strategies.parameters import configure

from .analysis import FIELDS, EngineResult, Proposal, analyse
from .measure import ROUNDS, Measured, measure
from .observer import Observer
from .requests import RecordedRequests, recorded_requests
from .result import RESULT, to_json
from .workload import loadable_generator, loadable_verifier

PROBLEMS = 8
"""Of the run that is recorded where none is given."""
LEAST_REQUESTS = 16
"""Requests to each engine that a run must hold."""


@dataclass(frozen=True)
class Tuned:
    """What `tune` found, and the file that keeps it."""

    engines: tuple[EngineResult, ...]
    file: Path
    interrupted: bool
    """Whether the user stopped it before everything was measured."""

    @property
    def proposals(self) -> list[Proposal]:
        """The budgets that follow, for the engines with enough measurements."""
        return [engine.proposal for engine in self.engines if engine.proposal]

    @property
    def changes(self) -> Mapping[Field, int]:
        """The proposed budgets that differ from those in the deployment file, by their fields."""
        return {FIELDS[p.role]: p.value for p in self.proposals if p.value != p.present}


def tune(
    deployment: str,
    *,
    run: Path | None = None,
    dataset: str = "demo",
    seconds: float = 60.0,
    out: Path | None = None,
    observer: Observer,
) -> Tuned:
    """Measure both engines of a deployment, keep the result, and say what follows.

    `run` is the run whose requests are sent; without one, a short run on `dataset` is recorded
    first. `seconds` is the time to measure, both engines together. `out` is the result's folder; a
    new one under runs/ if None. Ctrl-C ends the measurements early: what was measured until then is
    kept and returned. Raises a TtsError.
    """
    spec = load_checked(deployment)
    require_gpu(spec)
    require_current(spec)
    folder = (out or unused_folder(f"{spec.name}-tune")).resolve()
    if (folder / RESULT).exists():
        raise RunError(f"{folder} already holds a tune result.", hint="Name another with --out.")
    recorded = read_requests(run, spec) if run else None
    measured: list[Measured] = []
    interrupted = False
    try:
        with serving(spec) as (address, check):
            if recorded is None:
                run = folder / "run"
                _record(deployment, spec, dataset, run, address, check, observer)
                recorded = read_requests(run, spec)
            observer.say(
                f"Replaying {len(recorded.generations):,} generator and "
                f"{len(recorded.scorings):,} verifier requests of {run}"
            )
            _measure(spec, recorded, seconds, measured, address, check, observer)
    except Interrupted:
        if recorded is None or not any(engine.samples for engine in measured):
            raise
        interrupted = True
    engines = tuple(analyse(engine, spec) for engine in measured)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / RESULT, to_json(spec, str(run), recorded, engines))
    except OSError as error:
        raise cannot_write(folder, error) from error
    return Tuned(engines, folder / RESULT, interrupted)


def read_requests(run: Path, spec: Deployment) -> RecordedRequests:
    """The requests of a run of this deployment; raises RunError."""
    config = read_config(run)
    if config["deployment"] != spec.name:
        raise RunError(
            f"The run in {run} is one of {config['deployment']!r}, not of {spec.name!r}.",
            hint="Its token ids and lengths are those of other models: name a run of this "
            "deployment, or leave --run out to record one.",
        )
    problems = {
        problem.id: problem
        for problem in load_problems(config["dataset"], limit=config["limit"], seed=config["seed"])
    }
    asked = config["problem_ids"]
    if missing := set(asked) - set(problems):
        raise RunError(f"{run / CONFIG}: {config['dataset']} no longer holds {min(missing)!r}.")
    recorded = recorded_requests(
        Models.load(spec), [problems[name] for name in asked], config, read_events(run)
    )
    for role, requests in (("generator", recorded.generations), ("verifier", recorded.scorings)):
        if len(requests) < LEAST_REQUESTS:
            raise RunError(
                f"The run in {run} holds {len(requests)} requests to the {role}; "
                f"at least {LEAST_REQUESTS} are needed.",
                hint="Record one with: tts bench DEPLOYMENT --strategy beam-search",
            )
    return recorded


class _NoDisplay:
    def update(self) -> None:
        pass


def _record(
    deployment: str,
    spec: Deployment,
    dataset: str,
    folder: Path,
    address: str,
    check: Callable[[], None],
    observer: Observer,
) -> None:
    """A short run of beam search, kept in `folder`."""
    strategy = find_strategy("beam-search")
    problems = load_problems(dataset, limit=PROBLEMS)
    wanted = Wanted(deployment, dataset, PROBLEMS, 0, strategy.name, "decoupled", {})
    plan = plan_with(wanted, problems, spec, strategy, configure(strategy, spec, {}))
    observer.say(f"Recording a run of {len(problems)} problems")
    observer.recording(len(problems))
    running = execute(plan, folder, address, on_judged=lambda _solved, _judged: observer.solved())
    interruptible(watched(running, _NoDisplay(), check))


def _measure(
    spec: Deployment,
    recorded: RecordedRequests,
    seconds: float,
    into: list[Measured],
    address: str,
    check: Callable[[], None],
    observer: Observer,
) -> None:
    """Measure one engine after the other, adding to `into`."""

    async def both() -> None:
        async with TritonConnection(address) as connection:
            models = Models.load(spec)
            generator = TritonGenerator(
                connection,
                end_id=models.end_id,
                step_stop_words=models.step_stop_words,
                end_stop_words=models.end_stop_words,
            )
            # salts must differ from those of earlier measurements on the same server
            first = random.randrange(1 << 20)
            for engine in (
                loadable_generator(generator, recorded, spec),
                loadable_verifier(TritonVerifier(connection), recorded, spec),
            ):
                into.append(Measured(engine.role, engine.full_batch))
                observer.measuring(engine.role, len(engine.loads) * (ROUNDS + 1))
                await measure(engine, seconds / 2, into[-1], first=first, on_load=observer.at)

    interruptible(watched(both(), _NoDisplay(), check))
