"""What `tts bench` and `tts solve` do, between the command line and the runner."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tts.build import paths
from tts.build.builder import require_current
from tts.build.errors import TtsError
from tts.build.spec import Deployment, load_deployment
from tts.checks.requirements import require_gpu
from tts.datasets.load import load_problems
from tts.problem import Problem
from tts.prompting.context import Context, Models
from tts.replay import Replay, open_source
from tts.reports.console import say
from tts.reports.live_tree import LiveTree
from tts.runlog.folder import read_config
from tts.scheduling import ScheduleName, SpeculationName
from tts.search import SearchConfig
from tts.serving.repository.digest import deployment_digest
from tts.strategies.catalog import find_strategy
from tts.strategies.parameters import check_blocks, configure
from tts.strategies.strategy import Strategy

from .run import Plan, Progress, execute
from .serving import interruptible, run_plan, serving, watched


@dataclass(frozen=True)
class Wanted:
    """What the user asks a run to be, in the user's words. `dataset` is a name or a file.

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


def run_bench(wanted: Wanted, out: Path | None) -> Path:
    """Plan a benchmark run, check everything that can be checked, and run it; its folder."""
    problems = problems_of(wanted)
    plan = _plan(wanted, problems)
    folder = (out or new_folder(plan, plan.strategy.name)).resolve()
    _bench(plan, folder, resume=False)
    return folder


def resume_bench(folder: Path, deployment: str | None) -> Path:
    """Continue the run in `folder` with what it was started with; its folder."""
    config = read_config(folder)
    wanted = as_wanted(config, deployment, config["strategy"], config["parameters"])
    problems = problems_of(wanted)
    folder = folder.resolve()
    _bench(_plan(wanted, problems), folder, resume=True)
    return folder


def problems_of(wanted: Wanted) -> list[Problem]:
    """The problems to solve; raises DatasetError."""
    problems = load_problems(wanted.dataset, limit=wanted.limit, seed=wanted.seed)
    return open_source(wanted.replay).problems(problems) if wanted.replay else problems


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
    )


def run_solve(question: str, wanted: Wanted, out: Path | None) -> None:
    """Solve one problem, drawing its tree, and print the answer."""
    plan = _plan(wanted, [Problem("solve", question)])
    folder = (out or new_folder(plan, plan.strategy.name)).resolve()
    tree = LiveTree(question)
    with serving(plan.deployment) as (address, check), tree.shown():
        running = execute(
            plan,
            folder,
            address,
            on_node=lambda _, search: tree.node(search),
            on_judged=lambda solved, judged: tree.keep(solved.search, judged),
        )
        interruptible(watched(running, tree, check))
    tree.print_answer(plan.strategy.vote)
    say(f"run folder: {folder}")


def _plan(wanted: Wanted, problems: list[Problem]) -> Plan:
    """Check the strategy, the engines and every problem's length before anything starts."""
    strategy = find_strategy(wanted.strategy)
    spec = load_checked(wanted.deployment)
    parameters = configure(strategy, spec, wanted.parameters)
    return plan_with(wanted, problems, spec, strategy, parameters)


def load_checked(deployment: str) -> Deployment:
    """A deployment whose strategies' parameters are valid too; raises ConfigError."""
    spec = load_deployment(deployment)
    check_blocks(spec)
    return spec


def plan_with(
    wanted: Wanted,
    problems: list[Problem],
    spec: Deployment,
    strategy: Strategy,
    parameters: SearchConfig,
) -> Plan:
    """A plan with these parameters; checks the engines and every problem's length."""
    require_gpu(spec)
    require_current(spec)
    models = Models.load(spec)
    replay = None
    if wanted.replay:
        source = open_source(wanted.replay)
        models = source.limited(models)
        replay = Replay(source.script(models, problems), source.description)
    return Plan(
        source=findable(wanted.deployment),
        deployment=spec,
        deployment_digest=deployment_digest(spec),
        dataset=findable(wanted.dataset),
        models=models,
        problems=tuple(Context.of(models, problem) for problem in problems),
        limit=wanted.limit,
        seed=wanted.seed,
        strategy=strategy,
        parameters=parameters,
        schedule=wanted.schedule,
        speculation=wanted.speculation,
        in_flight=wanted.in_flight,
        replay=replay,
    )


def findable(name_or_file: str) -> str:
    """A name as it is, a file by its absolute path: found again from any folder."""
    file = Path(name_or_file).expanduser()
    return str(file.resolve()) if file.is_file() else name_or_file


def new_folder(plan: Plan, what: str) -> Path:
    """A folder under runs/ that is not there yet, named for what will be in it."""
    return unused_folder(f"{plan.deployment.name}-{what}-{plan.schedule}")


def unused_folder(name: str) -> Path:
    """A folder under runs/ that is not there yet, with the time before its name."""
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    folder = paths.runs_dir() / name
    taken = 1
    while folder.exists():
        taken += 1
        folder = folder.with_name(f"{name}-{taken}")
    return folder


def _bench(plan: Plan, folder: Path, *, resume: bool) -> None:
    progress = Progress(len(plan.problems))
    try:
        run_plan(plan, folder, progress, resume=resume)
    except TtsError as error:
        if progress.began:
            solved = f"{progress.done} of {progress.total} problems are solved"
            raise with_way_on(error, solved, folder) from error
        raise


def with_way_on(error: TtsError, done: str, folder: Path) -> TtsError:
    """Add to an error's hint what is done and saved, and how to continue."""
    saved = f"{done} and saved in {folder}."
    way_on = f"Continue with: tts bench --resume {folder}"
    error.hint = "\n".join(part for part in (saved, error.hint, way_on) if part)
    return error
