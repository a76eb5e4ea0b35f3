"""A study carried out: every cell in every round, each in a run folder, resumable run by run."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from tts.base.choices import ServerKind
from tts.base.errors import RunError, ServerError
from tts.base.user_paths import is_there
from tts.build.spec import Deployment
from tts.build.started.memory import planned
from tts.fleet.connecting import require_engines
from tts.problem import Problem
from tts.runs.config import RunConfig, check_same
from tts.runs.folder import has_finished, locked
from tts.serving.repository.digest import deployment_digest
from tts.serving.repository.render import render_repository
from tts.session.event_loop import interruptible
from tts.session.plan import Plan, findable, load_checked, reaches_for
from tts.session.run import OpenRun, open_run, unused_folder

from ..campaign import Campaign, resumable
from ..observer import Observer
from ..tuning.measure import Measured, analyse
from ..tuning.tune import measure_engines, read_requests, to_json
from .cells import RESTART_S, Cell, CellRun, Form, seconds_left, starts
from .folder import (
    Study,
    StudyConfig,
    can_restart,
    create_study,
    is_finished,
    limits_digest,
    load_file,
    open_study,
    pilot_folder,
    read_study,
    remaining_of,
    run_folder,
    seconds_of,
    write,
)
from .kv_memory import deployment_of

PILOT_PROBLEMS = 4


def run_study(
    deployment: str,
    form: Form,
    out: Path | None,
    observer: Observer,
    *,
    dataset: str,
    seed: int,
    server: ServerKind | None = None,
) -> Study:
    """Begin a study on a dataset, a name or a file, and carry it out; raises a TtsError.

    `server` is what runs the engines; None: what the deployment says.
    """
    spec = load_checked(deployment).served_by(server)
    _check(spec, observer)
    config = StudyConfig(
        spec.name,
        findable(deployment),
        deployment_digest(spec),
        limits_digest(spec),
        findable(dataset),
        seed,
        form,
        restarts=can_restart(spec),
        server=server,
    )
    folder = (out or unused_folder(f"{spec.name}-study")).resolve()
    study = open_study(folder, config, spec)
    with locked(folder):
        create_study(folder, config)
        _run(study, observer)
    return study


def resume_study(folder: Path, deployment: str | None, observer: Observer) -> Study:
    """Continue a study: finished runs are kept, one that was interrupted begins anew."""
    source = read_study(folder).deployment_source
    if deployment is None and (reached := reaches_for(source)):
        raise RunError(
            f"The study in {folder} names {' and '.join(reached)}, in {source}, used only if you "
            "name it again.",
            hint="If you trust that: tts study "
            f"{shlex.quote(source)} --resume {shlex.quote(str(folder))}",
        )
    study = begun_study(folder, deployment)
    if is_finished(study):  # whatever this version would serve, nothing more is run
        return study
    folder, before, spec = study.folder, study.config, study.spec
    now = replace(before, deployment_digest=deployment_digest(spec))
    check_same(vars(now), vars(before), folder)
    _check(spec, observer)
    if before.restarts and not can_restart(spec):
        raise ServerError(
            f"The study in {folder} starts servers of deployment {spec.name} with other limits, "
            "but one is running now.",
            hint=f"Stop it: tts serve {spec.argument} --stop",
        )
    with locked(folder):
        _run(study, observer)
    return study


def finished_study(folder: Path) -> Study:
    """A study whose runs have all finished; raises RunError if one has not."""
    study = begun_study(folder)
    if not is_finished(study):
        raise RunError(
            f"The study in {folder} has not finished.",
            hint=f"Continue it with: tts study --resume {folder}",
        )
    return study


def begun_study(folder: Path, deployment: str | None = None) -> Study:
    """The study in a folder; raises RunError if the deployment says otherwise by now."""
    before = read_study(folder)
    folder = folder.resolve()
    spec = load_checked(deployment or before.deployment_source).served_by(before.server)
    now = replace(before, deployment=spec.name, limits_digest=limits_digest(spec))
    check_same(vars(now), vars(before), folder)
    return open_study(folder, before, spec)


def _check(spec: Deployment, observer: Observer) -> None:
    planned(spec).compiled_pair()
    if spec.engines():
        require_engines(spec, (), observer.say)


def _run(study: Study, observer: Observer) -> None:
    def state() -> str:
        if not has_finished(pilot_folder(study.folder)):
            return "0 runs are finished"
        steps = study.steps()[0]
        return f"{len(steps) - len(remaining_of(study, steps))} of {len(steps)} runs are finished"

    way_on = f"tts study --resume {study.folder}"
    try:
        with resumable(study.folder, state, way_on):
            campaign = Campaign(observer)
            interruptible(campaign.run(_runs(study, campaign, observer)), observer.say)
    finally:
        # the model repository, if there is one, is left as the deployment has it
        if study.config.restarts and study.spec.server.kind == "triton":
            render_repository(study.spec)


async def _runs(
    study: Study, campaign: Campaign, observer: Observer
) -> AsyncGenerator[tuple[str, OpenRun], None]:
    """The runs that remain, each opened when the one before it has ended, and measurements."""
    base = study.cells()[0]
    if not has_finished(pilot_folder(study.folder)):
        observer.say("A pilot run, to see how long the study will take")
        pilot = study.problems[:PILOT_PROBLEMS]
        with _opened(study, base, pilot, pilot_folder(study.folder)) as run:
            yield "pilot", run
    steps, rounds = study.steps()
    count = len(rounds[0])
    remaining = remaining_of(study, steps)
    _announce(study, steps, remaining, count, observer)
    for place, step in enumerate(remaining):
        if step.cell.engines != base.engines:  # before those of the first round are closed
            await _measure_load(study, campaign, observer)
        seconds = seconds_left(
            remaining[place:],
            count,
            seconds_of(study, steps),
            unit_s=study.unit_s,
            start_s=campaign.start_s or RESTART_S,
        )
        number = len(steps) - len(remaining) + place + 1
        title = f"{number}/{len(steps)} {step.cell.title} (about {in_words(seconds)} left)"
        observer.say(title)
        problems, where = rounds[step.round - 1], run_folder(study.folder, step)
        with _opened(study, step.cell, problems, where) as run:
            yield title, run
    await _measure_load(study, campaign, observer)


def _engines(study: Study, cell: Cell) -> Deployment:
    return deployment_of(study.spec, study.memory, cell.engines)


def _opened(
    study: Study, cell: Cell, problems: tuple[Problem, ...], folder: Path
) -> AbstractContextManager[OpenRun]:
    """One run, from its beginning: of an interrupted one, only half would be timed."""
    if is_there(folder):
        shutil.rmtree(folder)
    config = RunConfig(
        deployment_source=study.config.deployment_source,
        seed=study.config.seed,
        schedule=cell.schedule,
        speculation=cell.speculation,
        in_flight=cell.in_flight,
    )
    return open_run(Plan(config, _engines(study, cell), problems, study.strategy(cell.n)), folder)


async def _measure_load(study: Study, campaign: Campaign, observer: Observer) -> None:
    """Measure both engines' throughput over load, where it is not there yet, and keep it.

    The requests are those of the first base run. Raises a TtsError.
    """
    base = study.cells()[0]
    run = run_folder(study.folder, CellRun(base, 1))
    if is_there(load_file(study.folder)) or not has_finished(run):
        return
    session = await campaign.session(_engines(study, base))
    recorded = read_requests(run, session.models)
    measured: list[Measured] = []
    seconds = study.config.form.load_s
    async with session.work():
        await measure_engines(session, recorded, seconds, measured, observer)
    spec = planned(session.deployment)
    results = [analyse(each, spec) for each in measured]
    write(load_file(study.folder), to_json(spec, str(run), recorded, results))


def _announce(
    study: Study,
    steps: Sequence[CellRun],
    remaining: Sequence[CellRun],
    count: int,
    observer: Observer,
) -> None:
    load_s = 0.0 if is_there(load_file(study.folder)) else study.config.form.load_s
    expected = load_s + seconds_left(
        remaining, count, seconds_of(study, steps), unit_s=study.unit_s
    )
    observer.say(
        f"{len(steps)} runs of {count} problems, {starts(steps)} server starts; "
        f"{len(remaining)} runs are left: about {in_words(expected)}."
    )
    if not study.config.restarts:
        observer.say(
            "One server is used as it is: other divisions of the KV memory are modelled from the "
            "run's own requests."
        )


def in_words(seconds: float) -> str:
    """A length of time, as precisely as a forecast is: `40 s`, `7 min`, `2 h 10 min`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
