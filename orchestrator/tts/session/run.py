"""One run in a folder: carries out its plan, logs everything, and continues from a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from tts.base import paths
from tts.base.errors import RunError
from tts.base.user_paths import is_there
from tts.fleet.drivers import Drivers
from tts.fleet.engine_steps import recording_steps
from tts.fleet.engines import Engines
from tts.grading import Equality
from tts.problem import Problem
from tts.runs.answers import write_answers
from tts.runs.checks import check_inputs, drop_stale_summary, write_summary
from tts.runs.config import FunctionSource, check_same, read_run_config
from tts.runs.events import AnyEvent, Finished
from tts.runs.folder import (
    EVENTS,
    create_run,
    has_begun,
    has_finished,
    refuse_begun,
    write_problems,
)
from tts.runs.lock import locked
from tts.runs.log import RunLog, read_events
from tts.runs.resume import ResumePoint, read_resume_point, repair_log
from tts.runs.run import Run, problem_record
from tts.runs.state import solved_problems
from tts.runs.summary import summarise
from tts.strategies.strategy import Vote

from .plan import Plan
from .questions import in_turn
from .resources import recorded_resources
from .result import Result, RunProgress, Usage
from .solver import Outbox, Solver


@dataclass(frozen=True)
class OpenRun:
    """A run whose folder this process has locked, with the work of earlier sessions."""

    plan: Plan
    folder: Path
    begun: bool
    """Whether the folder held the run already when it was opened."""
    point: ResumePoint

    @property
    def left(self) -> list[Problem]:
        """The problems that are left to solve."""
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
            refuse_begun(folder, in_python=not plan.asked.command)
        problems = {problem.id for problem in plan.problems}
        if repair and (repaired := repair_log(folder, problems)):
            say(str(repaired))
        drop_stale_summary(folder, say)
        check_inputs(folder)
        sources = read_run_config(folder, going_on=True).sources if has_begun(folder) else {}
        point = read_resume_point(
            folder, plan.strategy.vote, _digests(plan.config.sources), _digests(sources)
        )
        if strangers := point.solved.keys() - problems:
            raise RunError(
                f"{folder / EVENTS}: {min(strangers)!r} is solved, but is no problem of this run.",
                hint="Cut the log off before that, keeping a copy of it: "
                f"tts bench --resume {folder} --repair",
            )
        for role in point.changed:
            say(_kept(plan.config.sources[role].file, role, point))
        yield OpenRun(plan, folder, resume, point)


def _digests(sources: Mapping[str, FunctionSource]) -> dict[str, str]:
    return {role: source.sha256 for role, source in sources.items()}


def _kept(file: str, role: str, point: ResumePoint) -> str:
    """What stays of a run whose function's file has changed."""
    return (
        f"{file}, which has the {role}, has changed: the {len(point.solved)} problems that are "
        "solved stay as it was; those that had begun are "
        f"{'scored' if role == 'verifier' else 'searched'} anew. The log keeps when it changed."
    )


async def execute(
    run: OpenRun,
    engines: Engines,
    grader: Equality,
    outbox: Outbox,
    *,
    progress: RunProgress,
    opened: set[Drivers],
    earlier: bool,
) -> None:
    """Carry out a run in its folder; each result goes to `outbox`.

    With `earlier` the results that are in its log come first. Generations and scores of unfinished
    problems are taken from there. `opened` holds the run's drivers while it runs. Raises a TtsError
    if a problem fails, and what was done until then is saved; RunError if a continued run used
    another model.
    """
    # the facts about engines that run already, now that they were asked
    run = replace(run, plan=replace(run.plan, remotes=engines.remotes.engine_records()))
    plan, folder = run.plan, run.folder
    if run.begun:
        _check_same(plan, folder)
        for correct in run.point.solved.values():
            progress.count(correct)
        if earlier:
            events = read_events(folder)
            for result in logged_results(events, plan.problems, plan.strategy.vote):
                await outbox.room()
                outbox.put(result)
    else:
        if plan.asked.keeps_problems:  # first: the run has begun when its run.json is there
            write_problems(folder, plan.problems)
        create_run(folder, plan.config.to_json())
    if not run.left:
        complete(run)
        return
    policy, servers = plan.policy, len(engines.replicas)
    limits = policy.generator_requests * servers, policy.verifier_limit * servers
    with RunLog(folder, limits, run.point.changed) as log:
        progress.began = True
        async with (
            recorded_resources(log),
            recording_steps(log, engines.steps),
            Drivers(engines.models, engines.replicas, policy, log) as drivers,
        ):
            opened.add(drivers)
            try:
                with Solver(plan, drivers, grader) as solver:
                    await solver.solve_all(
                        in_turn(solver.in_order(run.left, run.point.decisions)),
                        outbox,
                        resumed=run.point.unfinished,
                        progress=progress,
                    )
            finally:
                opened.discard(drivers)
        _end(log)
    _summarise(run)


def _check_same(plan: Plan, folder: Path) -> None:
    before = read_run_config(folder, going_on=True)
    check_same(plan.config.to_json(), before.to_json(), folder)


def complete(run: OpenRun) -> None:
    """Complete a run whose problems are all solved: the log's end, the summary."""
    if has_finished(run.folder):
        return
    if not any(isinstance(event, Finished) for event in read_events(run.folder)):
        with RunLog(run.folder) as log:
            _end(log)
    _summarise(run)


def _end(log: RunLog) -> None:
    log.write(Finished(t=log.clock()))
    log.sync()


def _summarise(run: OpenRun) -> None:
    done = Run(run.folder, run.plan.config, None)
    write_answers(done)
    write_summary(done.folder, summarise(done.config, done.totals).to_json())


def logged_results(
    events: Iterable[AnyEvent], problems: Iterable[Problem], vote: Vote
) -> Iterator[Result]:
    """The results of solved problems, in the order in which they were solved, without trees."""
    asked = {problem.id: problem for problem in problems}
    for problem in solved_problems(events):
        record, tokens = problem_record(problem, vote), problem.tokens_by_node()
        used = {node for path in problem.completed_paths() for node in path}
        completion_tokens = sum(tokens.get(node, 0) for node in used)
        yield Result(
            asked[record.id],
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
    """A new folder under runs/, whose name begins with the time.

    Raises ConfigError if runs/ is another user's, and closed.
    """
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    folder = paths.runs_dir() / name
    taken = 1
    while is_there(folder):
        taken += 1
        folder = folder.with_name(f"{name}-{taken}")
    return folder
