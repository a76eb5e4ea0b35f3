"""One run in a folder: its plan carried out, everything logged, and what a log holds continued."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tts.analysis.summary import summarise
from tts.build import paths
from tts.endpoints.base import Generator, Verifier
from tts.prompting import Models
from tts.runlog.events import Finished
from tts.runlog.folder import create_run, read_config, write_problems, write_summary
from tts.runlog.log import RunLog, read_events
from tts.runlog.resume import read_resume_point

from .logged import logged_results
from .outbox import Outbox
from .plan import Plan, check_same
from .progress import RunProgress
from .solver import Solver, Task, open_solver
from .usage import Meter


async def execute(
    plan: Plan,
    folder: Path,
    models: Models,
    endpoints: tuple[Generator, Verifier],
    task: Task,
    outbox: Outbox,
    *,
    resume: bool,
    progress: RunProgress,
    deadline_s: float | None,
    opened: set[Solver],
) -> None:
    """Carry out a plan in its folder; each result goes to `outbox`.

    With `resume` the folder's earlier sessions are continued: the results that are in the log come
    first, and what was generated or scored for unfinished problems is taken from it. `opened` holds
    the run's solver while it runs. Raises a TtsError if a problem fails; what was done until then
    is saved.
    """
    config = plan.to_config()
    if resume:
        check_same(config, read_config(folder), folder)
    else:
        create_run(folder, config)
        if plan.keeps_problems:
            write_problems(folder, plan.problems)
    point = read_resume_point(folder, plan.strategy.vote)

    meter = Meter()
    if resume:
        earlier = read_events(folder)
        for result in logged_results(earlier, plan.problems, plan.strategy.vote, meter):
            await outbox.room()
            progress.count(result.correct)
            outbox.put(result)
    left = [problem for problem in plan.problems if problem.id not in point.solved]
    with RunLog(folder) as log:
        progress.began = True
        async with open_solver(models, *endpoints, plan.policy, log, meter) as solver:
            opened.add(solver)
            try:
                await solver.solve_all(
                    left,
                    task,
                    outbox,
                    resumed=point.unfinished,
                    deadline_s=deadline_s,
                    progress=progress,
                )
            finally:
                opened.discard(solver)
        log.write(Finished(t=log.clock(), saturation_point=solver.driver.saturation_point))
    write_summary(folder, summarise(config, read_events(folder)))


def unused_folder(name: str) -> Path:
    """A folder under runs/ that is not there yet, with the time before its name."""
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    folder = paths.runs_dir() / name
    taken = 1
    while folder.exists():
        taken += 1
        folder = folder.with_name(f"{name}-{taken}")
    return folder
