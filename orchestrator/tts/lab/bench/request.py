"""What `tts bench` and `tts solve` are asked for, in the user's words, and the plan it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tts.build import paths
from tts.build.builder import require_current
from tts.build.errors import ConfigError, TtsError
from tts.build.spec import Deployment, bundled_deployments
from tts.checks.requirements import require_gpu
from tts.datasets.demo_questions import why_outside
from tts.datasets.load import load_dataset, problems_of_run
from tts.datasets.options import DatasetOptions
from tts.problem import Problem
from tts.prompting import Models
from tts.runs.config import read_whole_config
from tts.runs.folder import PROBLEMS, has_begun, read_problems
from tts.runs.replay import Replay, open_source
from tts.scheduling import ScheduleName, SpeculationName
from tts.serving.server.lookup import served_deployments
from tts.session import AsyncSession, Result, RunProgress, Step
from tts.session.interrupts import interruptible
from tts.session.limits import Limits
from tts.session.plan import Plan, check_lengths, findable, load_checked, refuse_functions
from tts.session.run import open_run, unused_folder
from tts.session.strategy import ChosenStrategy, choose
from tts.strategies.catalog import find_strategy

from .observer import Observer
from .run import run_plan, with_way_on


@dataclass(frozen=True)
class Wanted:
    """What the user asks a run to be. `dataset` is a name or a file.

    `replay` is a run folder or a trace file.
    """

    deployment: str
    dataset: str
    limit: int | None
    seed: int
    strategy: str
    schedule: ScheduleName
    parameters: dict[str, Any]
    speculation: SpeculationName = "auto"
    in_flight: int | None = None
    replay: Path | None = None
    limits: Limits = field(default_factory=Limits)
    dataset_options: DatasetOptions = field(default_factory=DatasetOptions)
    endpoints: tuple[str, ...] = ()
    """The servers to use; none: those of the deployment, or of this machine."""


def run_bench(wanted: Wanted, out: Path | None, observer: Observer) -> Path:
    """Plan a benchmark run, check everything that can be checked, and run it; its folder."""
    plan = plan_of(wanted, problems_of(wanted, observer.say))
    folder = (out or new_folder(plan, plan.strategy.name)).resolve()
    _bench(plan, folder, observer, endpoints=wanted.endpoints)
    return folder


def bench_in(wanted: Wanted, folder: Path, observer: Observer) -> None:
    """Run a benchmark in a folder, or go on with what it holds of this same one."""
    plan = plan_of(wanted, problems_of(wanted, observer.say))
    resume = has_begun(folder)
    _bench(plan, folder.resolve(), observer, resume=resume, endpoints=wanted.endpoints)


def resume_bench(
    folder: Path,
    deployment: str | None,
    observer: Observer,
    *,
    repair: bool = False,
    endpoints: tuple[str, ...] = (),
) -> Path:
    """Continue the run in `folder` with what it was started with; its folder.

    With `repair` what is damaged of its log is dropped first.
    """
    config = read_whole_config(folder, going_on=True)
    refuse_functions(config, folder)
    wanted = as_wanted(config, deployment, config["strategy"], config["parameters"])
    wanted = replace(wanted, endpoints=endpoints)
    folder = folder.resolve()
    problems = _without_references(wanted, problems_of_run(folder, config))
    plan = plan_of(wanted, problems)
    _bench(plan, folder, observer, resume=True, repair=repair, endpoints=endpoints)
    return folder


def run_solve(
    question: str,
    wanted: Wanted,
    out: Path | None,
    observer: Observer,
    on_step: Callable[[Step], None],
) -> tuple[Result, Path]:
    """Solve one problem, which is a run of its own: its result and the run's folder."""
    if not question.strip():
        raise ConfigError("The question is empty.", hint="Write it in quotes: tts solve '1 + 1?'")
    plan = plan_of(replace(wanted, dataset=PROBLEMS), [Problem("solve", question)])
    if _is_the_demo_pair(plan.deployment) and (why := why_outside(question)):
        observer.say(f"{why} The answer may well be wrong.")
    folder = (out or new_folder(plan, plan.strategy.name)).resolve()
    results: list[Result] = []
    progress = RunProgress(1)
    with open_run(plan, folder) as run:
        running = run_plan(
            new_session(plan, wanted.endpoints, observer),
            run,
            observer,
            progress,
            title=question,
            on_step=on_step,
            on_result=results.append,
        )
        try:
            interruptible(running, observer.say)
        except TtsError as error:
            if progress.began:
                raise with_way_on(error, "What there is of the tree is logged", folder) from error
            raise
    (result,) = results
    return result, folder


def default_deployment() -> str:
    """The bundled deployment to solve with where none is named: the one that is served, or demo."""
    served = [name for name in served_deployments() if name in bundled_deployments()]
    return served[0] if len(served) == 1 else "demo"


def as_wanted(
    config: dict[str, Any], deployment: str | None, strategy: str, parameters: dict[str, Any]
) -> Wanted:
    """What was asked for when `config` was written, on another deployment file if one is named."""
    return Wanted(
        deployment or config["deployment_source"],
        config["dataset"],
        config["limit"],
        config["seed"],
        strategy,
        config["schedule"],
        parameters,
        config.get("speculation", "auto"),  # older runs do not say
        config.get("in_flight"),
        Path(config["replay"]["source"]) if "replay" in config else None,
        Limits.of_config(config),
        DatasetOptions.of_config(config),
    )


def problems_of(wanted: Wanted, say: Callable[[str], None] = lambda line: None) -> list[Problem]:
    """The problems to solve; `say` gets where they come from. Raises DatasetError."""
    if wanted.replay and wanted.dataset == PROBLEMS:  # those of a program's run
        loaded = read_problems(wanted.replay)
    else:
        dataset = load_dataset(
            wanted.dataset,
            limit=wanted.limit,
            seed=wanted.seed,
            options=wanted.dataset_options,
            say=say,
        )
        loaded = dataset.problems
        if dataset.source:
            say(dataset.source)
    return _without_references(wanted, loaded)


def plan_of(wanted: Wanted, problems: Sequence[Problem]) -> Plan:
    """The plan of a run: the strategy, the engines and every problem's length are checked."""
    find_strategy(wanted.strategy)
    spec = load_checked(wanted.deployment)
    return plan_with(wanted, problems, spec, choose(wanted.strategy, spec, wanted.parameters))


def plan_with(
    wanted: Wanted, problems: Sequence[Problem], spec: Deployment, strategy: ChosenStrategy
) -> Plan:
    """A plan with this strategy; checks the engines and every problem's length."""
    if not (wanted.endpoints or spec.endpoints):
        require_gpu(spec)
    require_current(spec)
    models = Models.load(spec)
    replay = None
    if wanted.replay:
        source = open_source(wanted.replay)
        models = source.limited(models)
        replay = Replay(source.script(models, problems), source.description)
    plan = Plan(
        spec,
        tuple(problems),
        strategy,
        wanted.seed,
        wanted.schedule,
        wanted.speculation,
        wanted.in_flight,
        source=findable(wanted.deployment),
        dataset=findable(wanted.dataset),
        limit=wanted.limit,
        replay=replay,
        context=models.deployment.generator.max_seq_len,
        limits=wanted.limits,
        dataset_options=wanted.dataset_options,
    )
    check_lengths(models, plan.problems)
    return plan


def _is_the_demo_pair(deployment: Deployment) -> bool:
    bundled = paths.deployments_dir().parent / "checkpoints" / "demo-generator"
    return deployment.generator.checkpoint.resolve() == bundled.resolve()


def new_folder(plan: Plan, what: str) -> Path:
    """A folder under runs/ that is not there yet, named for what will be in it."""
    return unused_folder(f"{plan.deployment.name}-{what}-{plan.schedule}")


def _without_references(wanted: Wanted, problems: list[Problem]) -> list[Problem]:
    """The problems as they are solved: made-up text of a replay has no answers to compare."""
    return open_source(wanted.replay).problems(problems) if wanted.replay else problems


def new_session(plan: Plan, endpoints: tuple[str, ...], observer: Observer) -> AsyncSession:
    """A session for a plan's runs, on these servers if any are named."""
    return AsyncSession(
        plan.deployment,
        endpoints=endpoints or None,
        say=observer.say,
        on_loading=observer.loading,
    )


def _bench(
    plan: Plan,
    folder: Path,
    observer: Observer,
    *,
    resume: bool = False,
    repair: bool = False,
    endpoints: tuple[str, ...] = (),
) -> None:
    progress = RunProgress(len(plan.problems))
    with open_run(plan, folder, resume=resume, repair=repair, say=observer.say) as run:
        try:
            session = new_session(plan, endpoints, observer)
            interruptible(run_plan(session, run, observer, progress), observer.say)
        except TtsError as error:
            if progress.began:
                solved = f"{progress.done} of {progress.total} problems are solved"
                raise with_way_on(error, solved, folder) from error
            raise
