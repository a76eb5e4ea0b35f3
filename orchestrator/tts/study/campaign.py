"""A study carried out: every cell in every round, each in a run folder, resumable run by run."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from tts.bench.observer import Observer
from tts.bench.run import run_in
from tts.build.builder import require_current
from tts.build.errors import DatasetError, ServerError, TtsError
from tts.build.spec import Deployment
from tts.checks.requirements import require_gpu
from tts.datasets.load import load_problems
from tts.problem import Problem
from tts.prompting import Models
from tts.runlog.folder import has_finished, read_summary
from tts.runlog.lock import locked
from tts.serving.repository.digest import deployment_digest
from tts.serving.repository.render import render_repository
from tts.serving.server.lookup import find_server
from tts.session import AsyncSession, RunProgress
from tts.session.interrupts import interruptible
from tts.session.plan import Plan, check_lengths, check_same, findable, load_checked
from tts.session.run import open_run, unused_folder
from tts.session.strategy import ChosenStrategy, choose

from .cells import (
    Cell,
    Form,
    Step,
    cells_of,
    problems_of_rounds,
    problems_that_fit,
    seconds_left,
    starts,
    steps_of,
)
from .engines import StudyEngines
from .folder import (
    Asked,
    create_study,
    load_file,
    pilot_folder,
    read_study,
    run_folder,
    write_load,
)
from .kv_memory import PairMemory, generator_share, pair_memory
from .load import measure_load

STRATEGY = "beam-search"
PILOT_PROBLEMS = 4


@dataclass(frozen=True)
class Wanted:
    """What the user asks a study to be. `dataset` is a name or a file."""

    deployment: str
    form: Form
    dataset: str = "demo"
    seed: int = 0


@dataclass(frozen=True)
class Study:
    """A study that is begun: what its folder says, and what follows from it."""

    folder: Path
    asked: Asked
    spec: Deployment
    memory: PairMemory
    problems: tuple[Problem, ...]
    """Enough for all rounds."""

    @property
    def n(self) -> int:
        """Completions per problem, where a cell does not change it."""
        return int(self.strategy().parameters["n"])

    def strategy(self, n: int | None = None) -> ChosenStrategy:
        """The search of a cell."""
        n = n or self.asked.form.n
        return choose(STRATEGY, self.spec, {} if n is None else {"n": n})

    def cells(self, problems: int | None = None) -> list[Cell]:
        """The cells, where each of them has so many problems in a round."""
        restarts, cache = self.asked.restarts, self.spec.generator.kv_cache
        reuses = cache.reuse or self.spec.verifier.kv_cache.reuse
        return cells_of(
            self.asked.form,
            n=self.n,
            beam_width=int(self.strategy().parameters["beam_width"]),
            share=generator_share(self.spec, self.memory)
            if restarts and self.memory.shared
            else None,
            reuse=restarts and reuses,
            problems=problems,
        )

    @property
    def unit_s(self) -> float:
        """Seconds that a unit of work took in the pilot, which must have finished."""
        summary = read_summary(pilot_folder(self.folder))
        wall_s, problems = float(summary["wall_s"]), int(summary["problems"])
        return wall_s / (problems * self.n)

    def steps(self) -> tuple[list[Step], list[tuple[Problem, ...]]]:
        """Every run of the study, and each round's problems; after the pilot."""
        form = self.asked.form
        fitting = problems_that_fit(form, self.cells(), self.unit_s)
        rounds = problems_of_rounds(self.problems, form.rounds, fitting)
        return steps_of(self.cells(len(rounds[0])), form.rounds), rounds


def run_study(wanted: Wanted, out: Path | None, observer: Observer) -> Study:
    """Begin a study, carry it out, and return it; raises a TtsError."""
    spec = load_checked(wanted.deployment)
    _check(spec)
    asked = Asked(
        spec.name,
        findable(wanted.deployment),
        deployment_digest(spec),
        findable(wanted.dataset),
        wanted.seed,
        wanted.form,
        restarts=can_restart(spec),
    )
    folder = (out or unused_folder(f"{spec.name}-study")).resolve()
    study = _study(folder, asked, spec)
    with locked(folder):
        create_study(folder, asked)
        _carry_out(study, observer)
    return study


def resume_study(folder: Path, deployment: str | None, observer: Observer) -> Study:
    """Continue a study: finished runs are kept, one that was interrupted begins anew."""
    folder = folder.resolve()
    before = read_study(folder)
    spec = load_checked(deployment or before.deployment_source)
    now = replace(before, deployment=spec.name, deployment_digest=deployment_digest(spec))
    check_same(vars(now), vars(before), folder)
    study = _study(folder, before, spec)
    if is_finished(study):
        return study
    _check(spec)
    if before.restarts and not can_restart(spec):
        raise ServerError(
            f"The study in {folder} starts servers of deployment {spec.name} with other limits, "
            "but one is running now.",
            hint=f"Stop it: tts serve {spec.named} --stop",
        )
    with locked(folder):
        _carry_out(study, observer)
    return study


def is_finished(study: Study) -> bool:
    """Whether every run and the load are there."""
    if not has_finished(pilot_folder(study.folder)) or not load_file(study.folder).exists():
        return False
    return not _left(study, study.steps()[0])


def can_restart(spec: Deployment) -> bool:
    """Whether engines can be started with other pools: on this CPU, while nobody else serves."""
    return spec.target == "openvino" and find_server(spec) is None


def _check(spec: Deployment) -> None:
    require_gpu(spec)
    require_current(spec)


def _study(folder: Path, asked: Asked, spec: Deployment) -> Study:
    form = asked.form
    most = form.rounds * (form.problems or 64)
    problems = tuple(load_problems(asked.dataset, limit=most, seed=asked.seed))
    if len(problems) < form.rounds:
        raise DatasetError(
            f"{asked.dataset} holds {len(problems)} problems; the study has {form.rounds} rounds "
            "with problems of their own.",
            hint="Name a larger dataset.",
        )
    check_lengths(Models.load(spec), problems)
    return Study(folder, asked, spec, pair_memory(spec), problems)


def _carry_out(study: Study, observer: Observer) -> None:
    restarts = study.asked.restarts
    try:
        interruptible(_run_all(study, observer), observer.say)
    except TtsError as error:
        raise _with_way_on(error, study) from error
    finally:
        if restarts:  # the model repository is left as the deployment has it
            render_repository(study.spec)


async def _run_all(study: Study, observer: Observer) -> None:
    async with StudyEngines(study.spec, study.memory, observer) as engines:
        if not has_finished(pilot_folder(study.folder)):
            observer.say("A pilot run, to see how long the study will take")
            pilot = study.problems[:PILOT_PROBLEMS]
            base = study.cells()[0]
            session = await engines.cold(base.engines)
            await _run_one(
                study, base, pilot, pilot_folder(study.folder), session, observer, "pilot"
            )
        steps, rounds = study.steps()
        count = len(rounds[0])
        left = _left(study, steps)
        _announce(study, steps, left, count, observer)
        for place, step in enumerate(left):
            await _measure_load_if_due(study, step, engines, observer)
            remaining = seconds_left(
                left[place:],
                count,
                _finished(study, steps),
                unit_s=study.unit_s,
                start_s=engines.start_s,
            )
            title = f"{len(steps) - len(left) + place + 1}/{len(steps)} {step.cell.title}"
            session = await engines.cold(step.cell.engines)
            problems = rounds[step.round - 1]
            where = run_folder(study.folder, step)
            about = f"{title} (about {in_words(remaining)} left)"
            await _run_one(study, step.cell, problems, where, session, observer, about)
        await _measure_load_if_due(study, None, engines, observer)


async def _run_one(
    study: Study,
    cell: Cell,
    problems: tuple[Problem, ...],
    folder: Path,
    session: AsyncSession,
    observer: Observer,
    title: str,
) -> None:
    """One run, from its beginning: of an interrupted one, only half would be timed."""
    if folder.exists():
        shutil.rmtree(folder)
    plan = Plan(
        session.deployment,
        problems,
        study.strategy(cell.n),
        study.asked.seed,
        cell.schedule,
        cell.speculation,
        cell.in_flight,
        source=study.asked.deployment_source,
    )
    observer.say(title)
    with open_run(plan, folder) as run:
        await run_in(session, run, observer, RunProgress(len(problems)), title=title)


async def _measure_load_if_due(
    study: Study, next_step: Step | None, engines: StudyEngines, observer: Observer
) -> None:
    """Throughput over load, once the first base run is there and before its engines are closed."""
    base = study.cells()[0]
    first = run_folder(study.folder, Step(base, 1))
    if load_file(study.folder).exists() or not has_finished(first):
        return
    if next_step and next_step.cell.engines == base.engines:
        return
    session = await engines.cold(base.engines)
    write_load(study.folder, await measure_load(session, first, study.asked.form.load_s, observer))


def _left(study: Study, steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if not has_finished(run_folder(study.folder, step))]


def _finished(study: Study, steps: Sequence[Step]) -> dict[str, float]:
    """Mean seconds of the cells that ran already."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for step in steps:
        if has_finished(where := run_folder(study.folder, step)):
            seconds[step.cell.name].append(float(read_summary(where)["wall_s"]))
    return {name: fmean(each) for name, each in seconds.items()}


def _announce(
    study: Study, steps: Sequence[Step], left: Sequence[Step], count: int, observer: Observer
) -> None:
    load_s = 0.0 if load_file(study.folder).exists() else study.asked.form.load_s
    expected = load_s + seconds_left(left, count, _finished(study, steps), unit_s=study.unit_s)
    observer.say(
        f"{len(steps)} runs of {count} problems, {starts(steps)} server starts; "
        f"{len(left)} runs are left: about {in_words(expected)}."
    )
    if not study.asked.restarts:
        observer.say(
            "One server is used as it is: other divisions of the KV memory are modelled from the "
            "run's own requests."
        )


def _with_way_on(error: TtsError, study: Study) -> TtsError:
    """Add to an error's hint what is saved, and how to continue."""
    saved = "Finished runs are saved."
    if has_finished(pilot_folder(study.folder)):
        steps = study.steps()[0]
        done = len(steps) - len(_left(study, steps))
        saved = f"{done} of {len(steps)} runs are finished and saved in {study.folder}."
    way_on = f"Continue with: tts study --resume {study.folder}"
    error.hint = "\n".join(part for part in (saved, error.hint, way_on) if part)
    return error


def in_words(seconds: float) -> str:
    """A length of time, as precisely as a forecast is: `40 s`, `7 min`, `2 h 10 min`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
