"""One run of `tts bench` or `tts solve`: prepared, carried out, continued."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec

from tts.base.choices import AnswerKind, ServerKind
from tts.base.errors import ConfigError, RunError
from tts.build.spec import Deployment, VerifierFunction, bundled_deployments
from tts.datasets.load import load_dataset
from tts.datasets.options import DatasetOptions, Shard
from tts.datasets.rows import Columns
from tts.fleet.connecting import require_engines
from tts.fleet.engines import takes_text
from tts.grading.code import CodeGrader, tests_of
from tts.problem import Problem
from tts.prompting import Models
from tts.runs.config import FunctionSource, Limits, RunConfig, read_run_config
from tts.runs.folder import PROBLEMS, read_problems, refuse_begun
from tts.search import SearchConfig
from tts.serving.server.lookup import served_deployments
from tts.session import Result, Step
from tts.session.functions import Loaded, load_all
from tts.session.outcome import doubt_of_answer, doubt_of_question
from tts.session.plan import (
    Plan,
    check_lengths,
    deployment_of,
    findable,
    reaches_for,
    refuse_functions,
)
from tts.session.run import logged_results, unused_folder
from tts.session.solver import Outbox
from tts.session.strategy import ChosenStrategy, StrategyLike, choose
from tts.strategies.catalog import find_strategy
from tts.strategies.strategy import Vote

from ..campaign import Campaign, carry_out
from ..observer import Observer
from .fitting import fit

TITLE = "problems"
"""The title of a run that is the only one."""
SOLVED = "solve"
"""The id of the only problem of `run_solve`."""


def run_bench(
    config: RunConfig, out: Path | None, observer: Observer, *, endpoints: tuple[str, ...] = ()
) -> Path:
    """Prepare a benchmark run, check everything that can be checked, and run it; its folder.

    `endpoints` are the servers to use; none: those of the deployment, or of this machine.
    """
    plan = prepare(config, observer, endpoints)
    folder = folder_of(plan, plan.strategy.name, out)
    refuse_begun(folder)
    _carry_out(plan, folder, observer, endpoints)
    return folder


def bench_in(
    config: RunConfig,
    folder: Path,
    observer: Observer,
    *,
    endpoints: tuple[str, ...] = (),
    repair: bool = False,
) -> None:
    """Run a benchmark in a folder, or resume it there."""
    folder = folder.resolve()
    plan = prepare(config, observer, endpoints, folder=folder)
    _carry_out(plan, folder, observer, endpoints, repair=repair)


def _carry_out(
    plan: Plan,
    folder: Path,
    observer: Observer,
    endpoints: tuple[str, ...],
    *,
    repair: bool = False,
) -> None:
    # what n is fitted with is in the caches, and a run begins without
    campaign = Campaign(observer, endpoints, plan.verifier, cold=_needs_n(plan))

    async def plans() -> dict[str, tuple[Plan, Path]]:
        return {TITLE: (await fitted(plan, campaign), folder)}

    carry_out(campaign, plans(), folder, way_on(plan, folder), repair=repair)


def _needs_n(plan: Plan) -> bool:
    """Whether a budget of tokens is to choose the n of a run.

    Not where one is given, the search has none, or spends the budget by itself.
    """
    config, parameters = plan.strategy.config, plan.request.parameters
    has_n = isinstance(_strategy(plan), SearchConfig) or "n" in parameters
    return bool(
        plan.request.limits.budget_tokens and not has_n and config and not config.TAKES_BUDGET
    )


def _strategy(plan: Plan) -> StrategyLike:
    loaded = plan.loaded.get("strategy")
    strategy: StrategyLike = loaded.value if loaded else plan.request.strategy
    return strategy


async def fitted(plan: Plan, campaign: Campaign) -> Plan:
    """The plan with the n that its budget of tokens has room for on average, if it needs one."""
    if not _needs_n(plan):
        return plan
    request = fitted_to_budget(plan.request)
    whole = msgspec.structs.replace(request, shard=None)
    # every shard finds the same n
    problems = gather_problems(whole)[1] if request.shard else plan.problems
    campaign.observer.say("Fitting n to the budget on a few problems")
    pilot = replace(plan, request=request, problems=tuple(problems))
    config = await fit(pilot, _strategy(plan), request.parameters, campaign)
    changes = {name: value for name, value in config if name in ("n", "beam_width")}
    request = msgspec.structs.replace(request, parameters={**request.parameters, **changes})
    return replace(plan, request=request, strategy=replace(plan.strategy, config=config))


def fitted_to_budget(config: RunConfig) -> RunConfig:
    """A configuration whose budget of tokens is the mean to which n is fitted, and no limit."""
    limits = Limits(deadline_s=config.limits.deadline_s)
    return msgspec.structs.replace(
        config, limits=limits, fitted_to=Limits(config.limits.budget_tokens)
    )


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
    bench_in(config, folder, observer, endpoints=endpoints, repair=repair)
    return folder.resolve()


def run_solve(
    question: str,
    config: RunConfig,
    out: Path | None,
    observer: Observer,
    on_step: Callable[[Step], None],
    *,
    endpoints: tuple[str, ...] = (),
) -> tuple[Result, str | None, Path]:
    """Solve one problem, a run of its own: its result, a doubt of its answer, the run's folder."""
    if not question.strip():
        raise ConfigError("The question is empty.", hint="Write it in quotes: tts solve '1 + 1?'")
    config = msgspec.structs.replace(config, dataset=PROBLEMS)
    plan = prepare(config, observer, endpoints, problems=[Problem(SOLVED, question)])
    folder = folder_of(plan, plan.strategy.name, out)
    refuse_begun(folder)
    outbox = Outbox()

    async def plans() -> dict[str, tuple[Plan, Path]]:
        return {question: (replace(plan, on_step=on_step), folder)}

    carry_out(
        Campaign(observer, endpoints, plan.verifier, cold=False),
        plans(),
        folder,
        way_on(plan, folder),
        saved="What there is of the tree is logged",
        outbox=outbox,
    )
    result = outbox.pop()
    assert result is not None  # the outbox is still open
    return result, _doubt_of(result, plan.deployment), folder


def solved_in(folder: Path, deployment: str | None) -> tuple[Result, str | None] | None:
    """The result of a finished run of `run_solve`, and a doubt of its answer; None of other runs.

    `deployment` was named in place of the run's own. Raises RunError.
    """
    config = read_run_config(folder)
    if not config.keeps_problems or config.problem_ids != [SOLVED]:
        return None
    (result,) = logged_results(folder, read_problems(folder), cast("Vote", config.vote))
    if deployment:
        config = msgspec.structs.replace(config, deployment_source=deployment)
    return result, _doubt_of(result, deployment_of(config))


def _doubt_of(result: Result, deployment: Deployment) -> str | None:
    best = result.chosen
    return doubt_of_answer(deployment, best.judged, best.probability) if best else None


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
        argument = f" {shlex.quote(config.deployment_source)}" if reached else ""
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
            hint=f"If you trust that: tts bench{argument} --resume {shlex.quote(str(folder))}"
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
    options = (
        (f"--{role.partition('-')[0]}", f"{each.file}:{each.name}")
        for role, each in sources.items()
    )
    return "".join(f" {shlex.join(words)}" for words in options)


def _named_strategy(
    config: RunConfig, spec: Deployment, loaded: Mapping[str, Loaded]
) -> ChosenStrategy:
    """The strategy that a configuration names, or has loaded from a file."""
    strategy = loaded["strategy"].value if "strategy" in loaded else config.strategy
    # the parameters of a function's searches are not known, as run.json says
    parameters = {} if config.parameters == {"n": None} else config.parameters
    return choose(strategy, spec, parameters)


def way_on(plan: Plan, folder: Path) -> str:
    """The command that continues a run or a group."""
    return f"tts bench --resume {folder}{repeated(plan.request.sources)}"


def gather_problems(
    config: RunConfig, say: Callable[[str], None] = lambda line: None, folder: Path | None = None
) -> tuple[RunConfig, Sequence[Problem]]:
    """The configuration with the digest of its problems, and these.

    `say` gets where they come from; `folder` is the run's, which may hold them. Raises DatasetError
    and RunError.
    """
    if config.keeps_problems:  # those of a program's run
        problems = read_problems(folder or Path())
        return msgspec.structs.replace(config, problems_digest=None), problems
    options = dataset_options(config)
    dataset = load_dataset(config.dataset, limit=config.limit, options=options, say=say)
    if dataset.source:
        say(dataset.source)
    return msgspec.structs.replace(config, problems_digest=dataset.digest), dataset.problems


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


def prepare(
    config: RunConfig,
    observer: Observer,
    endpoints: tuple[str, ...] = (),
    *,
    problems: Sequence[Problem] | None = None,
    folder: Path | None = None,
    pick: Callable[[Deployment, Mapping[str, Loaded]], ChosenStrategy] | None = None,
) -> Plan:
    """The plan of a run: its problems, the strategy; the engines and every length are checked.

    `problems`: those of the configuration by default, which may be in the run's `folder`. `pick`
    chooses another strategy than it names. Engines that are not built are, if that takes seconds.
    """
    if problems is None:
        config, problems = gather_problems(config, observer.say, folder)
    loaded = load_all(config.sources)
    if "strategy" not in loaded and not pick:
        find_strategy(config.strategy)
    spec = deployment_of(config)
    strategy = pick(spec, loaded) if pick else _named_strategy(config, spec, loaded)
    own = loaded["verifier"].value if "verifier" in loaded else None
    if own is None and isinstance(spec.verifier, VerifierFunction):
        raise ConfigError(
            f"Steps are scored by {spec.verifier.function}, as {config.deployment_source} says; "
            "code is executed only if the command names what it stands in.",
            hint=f"Add the deployment, {config.deployment_source}, or --verifier to the command.",
        )
    if spec.engines().keys() - ({"verifier"} if own is not None else set()):
        require_engines(spec, endpoints or spec.endpoints, observer.say)
    models = Models.load(spec, text_verifier=takes_text(spec, own))
    config = msgspec.structs.replace(
        config,
        deployment_source=findable(config.deployment_source),
        dataset=config.dataset if config.keeps_problems else findable(config.dataset),
    )
    if any(tests_of(problem.extra) for problem in problems):
        CodeGrader(spec.execution).require()
    if doubts := [doubt for each in problems if (doubt := doubt_of_question(spec, each.question))]:
        share = f"{len(doubts):,} of {len(problems):,} problems are not of the demo's kind. "
        observer.say((share if len(problems) > 1 else "") + doubts[0])
    plan = Plan(config, spec, tuple(problems), strategy, loaded=loaded)
    check_lengths(models, plan.problems, strategy.config)
    return plan


def folder_of(plan: Plan, what: str, out: Path | None) -> Path:
    """`out`, or a folder under runs/ that is not there yet, named for what will be in it."""
    name = f"{plan.deployment.name}-{what}-{plan.request.schedule}"
    return (out or unused_folder(name)).resolve()
