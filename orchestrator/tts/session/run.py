"""A run's folder: opened, begun or continued from its log, completed; and the machine's use.

Energy is that of NVIDIA GPUs from Volta on, by NVML's counters; without the extra `energy` none is
logged. They cover whole GPUs of this machine, with everything else that runs there.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tts.base import paths
from tts.base.errors import RunError
from tts.base.user_paths import is_there
from tts.fleet.drivers import Drivers
from tts.fleet.engine_steps import recording_steps
from tts.fleet.engines import Engines
from tts.problem import Problem
from tts.runs.checks import check_inputs, drop_stale_summary, write_summary
from tts.runs.config import FunctionSource, RemoteEngine, check_same, read_run_config
from tts.runs.events import Finished, Resources
from tts.runs.folder import (
    EVENTS,
    create_run,
    has_begun,
    has_finished,
    locked,
    refuse_begun,
    write_problems,
)
from tts.runs.log import RunLog, read_events
from tts.runs.resume import ResumePoint, read_resume_point, repair_log
from tts.runs.run import Run, problem_record
from tts.runs.state import solved_problems
from tts.runs.summary import summarise
from tts.runs.tables import write_answers
from tts.strategies.strategy import Vote

from .plan import Plan
from .result import Result, RunProgress, Usage


@dataclass(frozen=True)
class OpenRun:
    """A run whose folder this process has locked, with the work of earlier sessions."""

    plan: Plan
    folder: Path
    has_begun: bool
    """Whether the folder held the run already when it was opened."""
    point: ResumePoint

    @property
    def remaining(self) -> list[Problem]:
        """The problems that are still to be solved."""
        return [problem for problem in self.plan.problems if problem.id not in self.point.solved]


@contextmanager
def open_run(
    plan: Plan,
    folder: Path,
    *,
    resume: bool = False,
    repair: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[OpenRun]:
    """Lock a run's folder, and check that it holds this run; needs no engines.

    With `resume` the folder holds the run already; with `repair` its log is cut off where damage
    begins, and `say` is called with a line about it. Raises RunError.
    """
    if resume:
        _check_same(plan, folder)
    with locked(folder):
        if not resume:
            refuse_begun(folder, in_python=not plan.request.command)
        ids = plan.config.problem_ids
        if repair and (repaired := repair_log(folder, ids)):
            say(str(repaired))
        drop_stale_summary(folder, say)
        check_inputs(folder)
        sources = read_run_config(folder, going_on=True).sources if has_begun(folder) else {}
        point = read_resume_point(
            folder, plan.strategy.vote, _digests(plan.config.sources), _digests(sources)
        )
        if strangers := point.solved.keys() - ids:
            raise RunError(
                f"{folder / EVENTS}: {min(strangers)!r} is solved, but is no problem of this run.",
                hint="Cut the log off before that, keeping a copy of it: "
                f"tts bench --resume {folder} --repair",
            )
        for role in point.changed:
            say(_note_of_change(plan.config.sources[role].file, role, point))
        yield OpenRun(plan, folder, resume, point)


def _digests(sources: Mapping[str, FunctionSource]) -> dict[str, str]:
    return {role: source.sha256 for role, source in sources.items()}


def _note_of_change(file: str, role: str, point: ResumePoint) -> str:
    """What stays of a run whose function's file has changed."""
    return (
        f"{file}, which has the {role}, has changed: the {len(point.solved)} problems that are "
        "solved stay as it was; those that had begun are "
        f"{'scored' if role == 'verifier' else 'searched'} anew. The log keeps when it changed."
    )


def begin(run: OpenRun, remotes: Mapping[str, RemoteEngine], progress: RunProgress) -> OpenRun:
    """The run in its folder, with the facts about running engines; RunError for another model."""
    plan = replace(run.plan, remotes=remotes)
    if run.has_begun:
        _check_same(plan, run.folder)
        for correct in run.point.solved.values():
            progress.count(correct)
    else:
        if plan.request.keeps_problems:  # first: the run has begun when its run.json is there
            write_problems(run.folder, plan.problems)
        create_run(run.folder, plan.config.to_json())
    return replace(run, plan=plan)


@asynccontextmanager
async def logged_drivers(
    run: OpenRun, engines: Engines, progress: RunProgress
) -> AsyncIterator[Drivers]:
    """Drivers whose work is logged in the run's folder, also where the block raises."""
    policy, servers = run.plan.policy, len(engines.replicas)
    limits = policy.generator_requests * servers, policy.verifier_limit * servers
    with RunLog(run.folder, limits, run.point.changed) as log:
        progress.began = True
        async with (
            recorded_resources(log),
            recording_steps(log, engines.steps),
            Drivers(engines.models, engines.replicas, policy, log) as drivers,
        ):
            yield drivers
        _end(log)


def _check_same(plan: Plan, folder: Path) -> None:
    before = read_run_config(folder, going_on=True)
    check_same(plan.config.to_json(), before.to_json(), folder)


def complete(run: OpenRun) -> Run:
    """Complete a run whose problems are all solved: the log's end, the summary."""
    if has_finished(run.folder):
        return Run.load(run.folder)
    if not any(isinstance(event, Finished) for event in read_events(run.folder)):
        with RunLog(run.folder) as log:
            _end(log)
    return summarised(run)


def _end(log: RunLog) -> None:
    log.write(Finished(t=log.clock()))
    log.sync()


def summarised(run: OpenRun) -> Run:
    """The run, once its answers and its summary are written, both from one reading of the log."""
    finished = Run(run.folder, run.plan.config, None)
    write_answers(finished)
    write_summary(finished.folder, summarise(finished.config, finished.totals).to_json())
    return finished


def logged_results(folder: Path, problems: Iterable[Problem], vote: Vote) -> Iterator[Result]:
    """The results of a run's solved problems, in the order of their ends, without trees."""
    problem_of = {problem.id: problem for problem in problems}
    for problem in solved_problems(read_events(folder)):
        record, tokens = problem_record(problem, vote), problem.tokens_by_node()
        nodes = {node for path in problem.completed_paths() for node in path}
        completion_tokens = sum(tokens.get(node, 0) for node in nodes)
        yield Result(
            problem_of[record.id],
            record.answer,
            record.correct,
            vote,
            record.answers,
            record.completions,
            Usage.of(problem.work, completion_tokens, record.seconds or 0.0),
            record.tree_digest,
            None,
            record.limit,
        )


def unused_folder(name: str) -> Path:
    """A new folder under runs/, named by the time; ConfigError if runs/ is closed to this user."""
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    folder = paths.runs_dir() / name
    number = 1
    while is_there(folder):
        number += 1
        folder = folder.with_name(f"{name}-{number}")
    return folder


INTERVAL_S = 10.0
"""How much of a run that is killed may be missing."""


@asynccontextmanager
async def recorded_resources(log: RunLog) -> AsyncIterator[None]:
    """Log what the process has used since the start, every INTERVAL_S and at the end."""
    with gpu_energy() as joules:
        began = time.process_time()

        def record() -> None:
            seconds = round(time.process_time() - began, 6)
            with suppress(RunError):  # a disk that is full: the run's next event says so
                log.write(Resources(t=log.clock(), cpu_s=seconds, energy_j=joules()))

        async def record_often() -> None:
            while True:
                await asyncio.sleep(INTERVAL_S)
                record()

        recording = asyncio.ensure_future(record_often())
        try:
            yield
        finally:
            recording.cancel()
            record()


@contextmanager
def gpu_energy() -> Iterator[Callable[[], dict[str, float]]]:
    """Return a function that gives the joules each GPU has consumed since this call, by number.

    It gives none if the package nvidia-ml-py, the driver, a GPU or the counter is missing.
    """
    nvml = _initialised()
    if nvml is None:
        yield dict
        return
    try:
        before = _counters(nvml)
        yield lambda: {
            gpu: round((now - before[gpu]) / 1e3, 3)
            for gpu, now in _counters(nvml).items()
            if gpu in before
        }
    finally:
        nvml.nvmlShutdown()


def _initialised() -> Any | None:
    with suppress(Exception):  # ImportError, or an error of the package's own kind
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        return nvml
    return None


def _counters(nvml: Any) -> dict[str, int]:
    """Millijoules since the driver was loaded, of the GPUs that count them."""
    counters: dict[str, int] = {}
    with suppress(nvml.NVMLError):
        for gpu in range(nvml.nvmlDeviceGetCount()):
            with suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByIndex(gpu)
                counters[str(gpu)] = int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
    return counters
