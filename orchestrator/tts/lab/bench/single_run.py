"""One run of `tts bench` or `tts solve`: planned, carried out in a session, continued."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec

from tts.base.errors import ConfigError, RunError
from tts.build.server_kinds import ServerKind
from tts.build.spec import Deployment, VerifierFunction, bundled_deployments
from tts.datasets.answers import AnswerKind
from tts.datasets.load import load_dataset
from tts.datasets.options import DatasetOptions, Shard
from tts.datasets.rows import Columns
from tts.fleet.connecting import require_engines
from tts.fleet.engines import takes_text
from tts.grading.code import CodeGrader
from tts.grading.code_tests import tests_of
from tts.problem import Problem
from tts.prompting import Models
from tts.runs.config import FunctionSource, Limits, RunConfig, read_run_config
from tts.runs.folder import PROBLEMS, has_begun, read_problems, refuse_begun
from tts.search import SearchConfig
from tts.serving.server.lookup import served_deployments
from tts.session import Result, Step
from tts.session.doubts import doubt_of_answer, doubt_of_question
from tts.session.function_files import Loaded, load_all
from tts.session.plan import (
    Plan,
    check_lengths,
    deployment_of,
    findable,
    reaches_for,
    refuse_functions,
)
from tts.session.run import open_run, unused_folder
from tts.session.strategy import ChosenStrategy, choose
from tts.strategies.catalog import find_strategy

from ..campaign import Campaign, carry_out
from ..observer import Observer
from .fitting import fit_all


def run_bench(
    config: RunConfig, out: Path | None, observer: Observer, *, endpoints: tuple[str, ...] = ()
) -> Path:
    """Plan a benchmark run, check everything that can be checked, and run it; its folder.

    `endpoints` are the servers to use; none: those of the deployment, or of this machine.
    """
    config, problems = problems_of(config, observer.say)
    plan = plan_of(config, problems, endpoints, observer.say)
    folder = folder_of(plan, plan.strategy.name, out)
    refuse_begun(folder)
    _carry_out(fitted(plan, endpoints, observer), folder, observer, endpoints)
    return folder


def fitted(plan: Plan, endpoints: tuple[str, ...], observer: Observer) -> Plan:
    """The plan with the n that its budget of tokens has room for on average, if it names no n.

    Unchanged without such a budget, and where the search spends it by itself or has no n.
    """
    asked, config = plan.asked, plan.strategy.config
    strategy = plan.loaded["strategy"].value if "strategy" in plan.loaded else asked.strategy
    budget = Limits(asked.limits.budget_tokens)
    has_n = isinstance(strategy, SearchConfig) or "n" in asked.parameters
    if not budget or has_n or config is None or config.TAKES_BUDGET:
        return plan
    limits = Limits(deadline_s=asked.limits.deadline_s)
    asked = msgspec.structs.replace(asked, limits=limits, fitted_to=budget)
    whole = msgspec.structs.replace(asked, shard=None)
    # every shard finds the same n
    problems = problems_of(whole)[1] if asked.shard else plan.problems
    observer.say("Fitting n to the budget on a few problems")
    (found,) = fit_all(
        replace(plan, asked=asked, problems=tuple(problems)),
        [(strategy, asked.parameters)],
        Campaign(observer, endpoints, plan.verifier, cold=False),
        observer.say,
    )
    chosen = {name: value for name, value in found if name in ("n", "beam_width")}
    asked = msgspec.structs.replace(asked, parameters={**asked.parameters, **chosen})
    return replace(plan, asked=asked, strategy=replace(plan.strategy, config=found))


def bench_in(
    config: RunConfig, folder: Path, observer: Observer, *, endpoints: tuple[str, ...] = ()
) -> None:
    """Run a benchmark in a folder, or resume it there."""
    config, problems = problems_of(config, observer.say)
    plan = plan_of(config, problems, endpoints, observer.say)
    _carry_out(plan, folder.resolve(), observer, endpoints)


def resume_bench(
    folder: Path,
    deployment: str | None,
    observer: Observer,
    *,
    repair: bool = False,
    endpoints: tuple[str, ...] = (),
    server: ServerKind | None = None,
    sources: Mapping[str, FunctionSource] | None = None,
) -> Path:
    """Resume the run in `folder` with its own configuration; returns its folder.

    With `repair`, a damaged log is cut off first. `server`: what runs the engines from
    now on; None: what ran them before. `sources`: as `on_deployment`.
    """
    recorded = read_run_config(folder, going_on=True)
    refuse_functions(recorded, folder)
    config = on_deployment(recorded, folder, deployment, server, sources or {})
    folder = folder.resolve()
    config, problems = problems_of(config, observer.say, folder)
    plan = plan_of(config, problems, endpoints, observer.say)
    _carry_out(plan, folder, observer, endpoints, repair=repair)
    return folder


def run_solve(
    question: str,
    config: RunConfig,
    out: Path | None,
    observer: Observer,
    on_step: Callable[[Step], None],
    *,
    endpoints: tuple[str, ...] = (),
) -> tuple[Result, Path]:
    """Solve one problem, which is a run of its own: its result and the run's folder."""
    if not question.strip():
        raise ConfigError("The question is empty.", hint="Write it in quotes: tts solve '1 + 1?'")
    config = msgspec.structs.replace(config, dataset=PROBLEMS)
    plan = plan_of(config, [Problem("solve", question)], endpoints, observer.say)
    if doubt := doubt_of_question(plan.deployment, question):
        observer.say(doubt)
    folder = folder_of(plan, plan.strategy.name, out)
    refuse_begun(folder)
    results: list[Result] = []
    _carry_out(
        replace(plan, on_step=on_step),
        folder,
        observer,
        endpoints,
        question,
        saved="What there is of the tree is logged",
        on_result=results.append,
    )
    (result,) = results
    chosen = result.chosen
    if chosen and (doubt := doubt_of_answer(chosen.judged, chosen.probability)):
        observer.say(doubt)
    return result, folder


def default_deployment() -> str:
    """The bundled deployment to solve with where none is named: the one that is served, or demo."""
    served = [name for name in served_deployments() if name in bundled_deployments()]
    return served[0] if len(served) == 1 else "demo"


def on_deployment(
    config: RunConfig,
    folder: Path,
    deployment: str | None,
    server: ServerKind | None,
    sources: Mapping[str, FunctionSource],
) -> RunConfig:
    """A recorded configuration, on another deployment file or kind of server if one is named.

    Whoever made the folder may have named anything in run.json: Python files that take part are
    `sources`, which the user names again, and so is a deployment that leads to other machines.
    Raises RunError saying what to repeat.
    """
    reached = [] if deployment is not None else reaches_for(config.deployment_source)
    if reached or config.sources.keys() - sources.keys():
        named = f" {shlex.quote(config.deployment_source)}" if reached else ""
        raise RunError(
            f"The run in {folder} names "
            + " and ".join(
                [
                    f"Python code for its {role}, {each.file}"
                    for role, each in config.sources.items()
                ]
                + [f"{each}, in {config.deployment_source}" for each in reached]
            )
            + ", which is used only if you name it again.",
            hint=f"If you trust that: tts bench{named} --resume {shlex.quote(str(folder))}"
            f"{repeated(config.sources)}",
        )
    return msgspec.structs.replace(
        config,
        deployment_source=deployment or config.deployment_source,
        server=server or config.server,
        sources=dict(sources),
    )


def repeated(sources: Mapping[str, FunctionSource]) -> str:
    """The options that name Python files again, with a space before each."""
    named = (
        (f"--{role.partition('-')[0]}", f"{each.file}:{each.name}")
        for role, each in sources.items()
    )
    return "".join(f" {shlex.join(words)}" for words in named)


def problems_of(
    config: RunConfig, say: Callable[[str], None] = lambda line: None, folder: Path | None = None
) -> tuple[RunConfig, list[Problem]]:
    """The problems to solve, and the configuration with their digest.

    `say` gets where they come from; `folder` is the run's, which may hold them. Raises DatasetError
    and RunError.
    """
    digest = None
    if config.keeps_problems:  # those of a program's run
        loaded = read_problems(folder or Path())
    else:
        options = dataset_options(config)
        dataset = load_dataset(config.dataset, limit=config.limit, options=options, say=say)
        loaded, digest = dataset.problems, dataset.digest
        if dataset.source:
            say(dataset.source)
    return msgspec.structs.replace(config, problems_digest=digest), loaded


def dataset_options(config: RunConfig) -> DatasetOptions:
    """The options of a run; one that names no seed for its dataset has one for both."""
    return DatasetOptions(
        config.seed if config.dataset_seed is None else config.dataset_seed,
        cast("Columns", config.columns),
        cast("AnswerKind | None", config.answers),
        config.per_level,
        config.start,
        Shard.parse(config.shard) if config.shard is not None else None,
    )


def plan_of(
    config: RunConfig,
    problems: Sequence[Problem],
    endpoints: tuple[str, ...] = (),
    say: Callable[[str], None] = lambda line: None,
) -> Plan:
    """The plan of a run: the strategy, the engines and every problem's length are checked."""
    loaded = load_all(config.sources)
    if "strategy" not in loaded:
        find_strategy(config.strategy)
    spec = deployment_of(config)
    wanted = loaded["strategy"].value if "strategy" in loaded else config.strategy
    # those of a function's searches are not known, as run.json says
    given = {} if config.parameters == {"n": None} else config.parameters
    strategy = choose(wanted, spec, given)
    return plan_with(config, problems, spec, strategy, endpoints, loaded, say)


def plan_with(
    config: RunConfig,
    problems: Sequence[Problem],
    spec: Deployment,
    strategy: ChosenStrategy,
    endpoints: tuple[str, ...] = (),
    loaded: Mapping[str, Loaded] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Plan:
    """A plan with this strategy; checks the engines and every problem's length.

    Engines that are not built are, if that takes seconds; `say` gets a line then. `loaded`: what
    the configuration's sources name, if that was loaded already.
    """
    loaded = load_all(config.sources) if loaded is None else loaded
    own = loaded["verifier"].value if "verifier" in loaded else None
    if own is None and isinstance(spec.verifier, VerifierFunction):
        raise ConfigError(
            f"Steps are scored by {spec.verifier.function}, as {config.deployment_source} says; "
            "code is executed only if the command names what it stands in.",
            hint=f"Add the deployment, {config.deployment_source}, or --verifier to the command.",
        )
    if spec.engines().keys() - ({"verifier"} if own is not None else set()):
        require_engines(spec, endpoints or spec.endpoints, say)
    models = Models.load(spec, text_verifier=takes_text(spec, own))
    config = msgspec.structs.replace(
        config,
        deployment_source=findable(config.deployment_source),
        dataset=config.dataset if config.keeps_problems else findable(config.dataset),
    )
    if any(tests_of(problem.extra) for problem in problems):
        CodeGrader(spec.execution).require()
    plan = Plan(config, spec, tuple(problems), strategy, loaded=loaded)
    check_lengths(models, plan.problems, strategy.config)
    return plan


def folder_of(plan: Plan, what: str, out: Path | None) -> Path:
    """`out`, or a folder under runs/ that is not there yet, named for what will be in it."""
    named = f"{plan.deployment.name}-{what}-{plan.asked.schedule}"
    return (out or unused_folder(named)).resolve()


def _carry_out(
    plan: Plan,
    folder: Path,
    observer: Observer,
    endpoints: tuple[str, ...],
    title: str = "problems",
    **how: Any,
) -> None:
    campaign = Campaign(observer, endpoints, plan.verifier, cold=False)
    carry_out_all({title: (plan, folder)}, folder, observer, campaign, **how)


def carry_out_all(
    plans: Mapping[str, tuple[Plan, Path]],
    folder: Path,
    observer: Observer,
    campaign: Campaign,
    *,
    repair: bool = False,
    saved: str | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> None:
    """Make or continue runs one after the other: of each, by title, the plan and its folder.

    All are opened first, so that a damaged log is reported before anything is started. `folder` is
    what holds them; `saved` says what an error leaves, in place of a count. Raises a TtsError that
    says how to go on.
    """
    finished = 0
    with ExitStack() as opened:
        runs = {
            title: opened.enter_context(
                open_run(plan, where, resume=has_begun(where), repair=repair, say=observer.say)
            )
            for title, (plan, where) in plans.items()
        }

        async def running() -> None:
            nonlocal finished
            async with campaign:
                for title, run in runs.items():
                    if len(runs) > 1 and run.left:
                        observer.say(title)
                    await campaign.run(run, title, on_result)
                    finished += 1

        def done() -> str | None:
            now = campaign.progress
            solved = f"{now.done} of {now.total} problems"
            if len(runs) == 1:
                return (saved or f"{solved} are solved") if now.began else None
            said = f"{finished} of {len(runs)} runs are finished"
            if now.began and now.done < now.total:
                said += f", {solved} of the next are solved"
            return said

        sources = next(iter(runs.values())).plan.asked.sources
        way_on = f"tts bench --resume {folder}{repeated(sources)}"
        carry_out(running(), observer, folder, done, way_on)
