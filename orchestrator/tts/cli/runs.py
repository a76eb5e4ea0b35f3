"""`tts bench` and `tts solve`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer
from typer import BadParameter

from tts.base.errors import did_you_mean
from tts.base.input_files import Unreadable, is_file, require_path
from tts.base.user_paths import is_folder
from tts.base.yaml_text import parse_yaml
from tts.build.spec import bundled_deployments, load_deployment
from tts.datasets.options import Shard
from tts.datasets.rows import parse_columns
from tts.lab.bench.group_run import resume_group, run_all
from tts.lab.bench.sharded_run import run_on_ray
from tts.lab.bench.single_run import (
    default_deployment,
    resume_bench,
    run_bench,
    run_solve,
    solved_in,
)
from tts.reports.console import say
from tts.reports.live_tree import LiveTree, print_answer
from tts.reports.progress import Bars
from tts.runs.compare import Comparison, compare
from tts.runs.config import FunctionSource, Limits, RunConfig
from tts.runs.folder import PROBLEMS
from tts.runs.groups import is_group
from tts.runs.records import CompletionRecord
from tts.runs.rows import Row
from tts.search import Limit, significant
from tts.session.functions import names_function, source_of, sources_of
from tts.session.result import Usage
from tts.strategies.names import TEXT_PARAMETERS

from .command import command_line
from .json_output import print_json
from .options import ALL, given_options
from .options.search import STRATEGY, Bench, Solve


@dataclass(frozen=True, kw_only=True)
class SolveDocument:
    """A question and its answer."""

    run: str
    """The run's folder."""
    question: str
    answer: str | None
    """The answer by the strategy's own rule; null if no completion has an answer."""
    vote: str
    """The rule by which `answer` is chosen."""
    answers: dict[str, str | None]
    """The answer by each rule: best, weighted, majority."""
    limit: Limit | None
    """The limit that cut the search short; null if it finished."""
    completions: tuple[CompletionRecord, ...]
    """Best first."""
    usage: Usage
    tree_digest: str
    """Equal for equal trees."""


def _rounded(completion: CompletionRecord) -> CompletionRecord:
    """The completion with scores free of float noise: 0.9924, not 0.9924000000000001."""
    score, steps = completion.score, completion.step_scores
    return replace(
        completion,
        score=None if score is None else significant(score),
        step_scores=tuple(None if each is None else significant(each) for each in steps),
    )


@dataclass(frozen=True, kw_only=True)
class RunsDocument:
    """Runs side by side."""

    rows: list[Row]
    """A row for each strategy: several may share a run under different votes."""
    unfinished: dict[str, list[str]]
    """The strategies whose runs have not finished, by the folder of their comparison."""


@dataclass(frozen=True, kw_only=True)
class BenchDocument(RunsDocument):
    """What a benchmark came to."""

    folder: str
    """The folder of the run, or of the comparison."""


def bench(options: Bench) -> None:
    """Run `tts bench`."""
    servers, observer = tuple(options.endpoints or ()), Bars()
    strategies = options.strategy or []
    if options.resume is not None and options.ray:
        raise BadParameter("give the options of the run and its --out", param_hint="--ray")
    if options.resume is not None and (
        refused := sorted(_of_new_runs(options.context, strategies))
    ):
        raise BadParameter(
            "a run goes on as it was asked for; leave this out, or start a new run",
            param_hint=", ".join(f"--{name.replace('_', '-')}" for name in refused),
        )
    if options.repair and options.resume is None:
        raise BadParameter("goes with --resume DIR", param_hint="--repair")
    if options.resume is not None:
        carry_on = resume_group if is_group(options.resume) else resume_bench
        with observer:
            folder = carry_on(
                options.resume,
                options.deployment,
                observer,
                repair=options.repair,
                endpoints=servers,
                server=options.server,
                sources=given_sources(strategies, options.verifier, options.deployment),
            )
    elif options.deployment is None:
        raise BadParameter("name one, or --resume a run", param_hint="DEPLOYMENT")
    else:
        parameters, sweep = _given_sweep(options.n, options.parameters)
        compared = _compared(strategies)
        search = (strategies or [STRATEGY])[0]
        if sweep and search != ALL:
            compared = compared or (search,)
        search = ALL if compared else search
        config = RunConfig(
            deployment_source=options.deployment,
            dataset=options.dataset,
            limit=options.limit,
            seed=options.seed,
            strategy=search,
            parameters=parameters,
            schedule=options.schedule,
            speculation=options.speculation,
            in_flight=options.in_flight,
            dataset_seed=options.dataset_seed,
            columns={
                str(role): name for role, name in parse_columns(options.columns or []).items()
            },
            answers=options.answers,
            per_level=options.per_level,
            start=options.start,
            shard=str(Shard.parse(options.shard)) if options.shard is not None else None,
            limits=Limits(options.budget_tokens, options.deadline),
            server=options.server,
            sources=given_sources(strategies, options.verifier, options.deployment),
            command=command_line(options.context),
        )
        with observer:
            if config.strategy == ALL and not options.ray:
                folder = run_all(
                    config, options.out, observer, names=compared, sweep=sweep, endpoints=servers
                )
            else:
                run = run_on_ray if options.ray else run_bench
                folder = run(config, options.out, observer, endpoints=servers)
    comparison = compare([folder], finished=observer.runs, answers=options.as_json)
    if options.as_json:
        _print_document(comparison, folder)
    elif (
        options.resume
        and not is_group(folder)
        and (outcome := solved_in(folder, options.deployment))
    ):
        print_answer(*outcome)
    else:
        from tts.reports.terminal import print_report  # what `tts solve` need not import

        print_report(comparison)
    say(f"figures and search trees, as a page: tts report --open {folder}")


def solve(options: Solve) -> None:
    """Run `tts solve`."""
    *names, question = options.words
    is_file = _is_file_of_problems(question)
    alone = not (names or is_file or options.deployment)
    if alone and (suggestion := did_you_mean(question, bundled_deployments())):
        raise BadParameter(
            f"{question} is hardly a question. {suggestion}"
            "The question comes after the deployment.",
            param_hint="QUESTION",
        )
    if len(names) + (options.deployment is not None) > 1:
        raise BadParameter("give one deployment and one question, in quotes", param_hint="QUESTION")
    source = options.deployment or (names[0] if names else default_deployment())
    config = RunConfig(
        deployment_source=source,
        dataset=question if is_file else PROBLEMS,
        seed=options.seed,
        strategy=options.strategy,
        parameters=given_parameters(options.n, options.parameters),
        speculation=options.speculation,
        limits=Limits(options.budget_tokens, options.deadline),
        server=options.server,
        sources=given_sources([options.strategy], options.verifier, source),
        command=command_line(options.context),
    )
    servers = tuple(options.endpoints or ())
    if is_file:
        with Bars() as observer:
            folder = run_bench(config, options.out, observer, endpoints=servers)
        comparison = compare([folder], finished=observer.runs, answers=True)
        if options.as_json:
            _print_document(comparison, folder)
        else:
            from tts.reports.terminal import print_answers

            print_answers(comparison.rows[0].answers)
        say(f"the answers as tables: {folder}/answers.csv, answers.jsonl")
        return
    with LiveTree(question) as tree:
        result, doubt, folder = run_solve(
            question, config, options.out, tree, tree.step, endpoints=servers
        )
    say(f"its search tree and figures, as a page: tts report --open {folder}")
    if options.as_json:
        if doubt:
            say(doubt)
        document = SolveDocument(
            run=str(folder),
            question=result.problem.question,
            answer=result.answer,
            vote=result.vote,
            answers=result.answers,
            limit=result.limit,
            completions=tuple(map(_rounded, result.completions)),
            usage=result.usage,
            tree_digest=result.tree_digest,
        )
        print_json(document)
    else:
        print_answer(result, doubt)


def _of_new_runs(context: typer.Context, strategies: list[str]) -> set[str]:
    """The given options of `tts bench` that a run which goes on does not take."""
    accepted = {"resume", "repair", "deployment", "verifier", "endpoints", "server", "as_json"}
    if all(map(names_function, strategies)):
        accepted.add("strategy")
    return given_options(context) - accepted


def _print_document(comparison: Comparison, folder: Path) -> None:
    print_json(
        BenchDocument(rows=comparison.rows, unfinished=comparison.unfinished, folder=str(folder))
    )


def _is_file_of_problems(text: str) -> bool:
    """Whether `tts solve` gets a file of problems; raises BadParameter for what is neither."""
    if not text.strip():
        return False  # a path of no words is the current folder
    try:
        require_path(text)
    except Unreadable:  # a question may be long, or begin with ~
        return False
    suffix = Path(text).suffix.lower()
    there = is_file(Path(text).expanduser())
    if text in bundled_deployments() or (there and suffix in (".yaml", ".yml")):
        raise BadParameter(
            f"{text} is a deployment: the question comes after it", param_hint="QUESTION"
        )
    if is_folder(Path(text).expanduser()):
        raise BadParameter(
            f"{text} is a folder: name a file of problems in it, or tts bench --dataset {text}",
            param_hint="QUESTION",
        )
    if not there and suffix in (".jsonl", ".json", ".csv", ".tsv", ".parquet") and " " not in text:
        raise BadParameter(f"there is no file {text}", param_hint="QUESTION")
    return there


def _compared(strategies: list[str]) -> tuple[str, ...]:
    """The strategies to compare, none for one or all; raises BadParameter for what cannot be."""
    if len(strategies) < 2:
        return ()
    for each in strategies:
        what = (
            f"every strategy is in {ALL} already"
            if each == ALL
            else f"{each} is given twice"
            if strategies.count(each) > 1
            else None
        )
        if what:
            raise BadParameter(what, param_hint="--strategy")
    return tuple(strategies)


def given_sources(
    strategies: list[str], verifier: str | None, deployment: str | None
) -> dict[str, FunctionSource]:
    """The functions in Python files that take part: of options, or of the named deployment.

    Further strategies have the roles strategy-2, strategy-3 and so on.
    """
    own = filter(names_function, strategies)
    functions = {
        f"strategy-{n}" if n > 1 else "strategy": each for n, each in enumerate(own, start=1)
    }
    if verifier is not None:
        functions["verifier"] = verifier
    sources = {role: source_of(text) for role, text in functions.items()}
    if verifier is not None or deployment is None:
        return sources
    return sources | sources_of(load_deployment(deployment))


def given_parameters(
    n: Any, assignments: list[str] | None, parse: Callable[[str], Any] = parse_yaml
) -> dict[str, Any]:
    """A strategy's parameters as `--n` and `--set NAME=VALUE` give them; `parse` reads a value."""
    parameters: dict[str, Any] = {} if n is None else {"n": n}
    for assignment in assignments or []:
        name, separator, value = assignment.partition("=")
        if not separator or not name:
            raise BadParameter(f"{assignment!r} is not NAME=VALUE", param_hint="--set")
        name = name.strip()
        if name in parameters:
            raise BadParameter(f"{name} is given more than once", param_hint="--set")
        try:
            parameters[name] = value if name in TEXT_PARAMETERS else parse(value)
        except Unreadable as error:
            raise BadParameter(f"{assignment!r:.100}: {error}", param_hint="--set") from error
    return parameters


class _Values(list[Any]):
    """Several values of a parameter, each to be run."""


def _values(text: str) -> Any:
    """A text's value, or those between commas outside of quotes and brackets; raises Unreadable."""
    with suppress(Unreadable):
        if len(values := parse_yaml(f"[{text}]")) > 1:
            return _Values(values)
    return parse_yaml(text)


def _given_sweep(
    n: str | None, assignments: list[str] | None
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The parameters with one value, and those with several; raises BadParameter."""
    numbers = []
    for each in [] if n is None else n.split(","):
        if not each.strip().removeprefix("-").isdecimal():
            what = f"{each!r} is not a whole number" if each.strip() else "a number is missing"
            raise BadParameter(f"{what} in {n!r}; several: 1,4,16", param_hint="--n")
        numbers.append(int(each))
    whole = None if n is None else numbers[0] if len(numbers) == 1 else _Values(numbers)
    parameters = given_parameters(whole, assignments, _values)
    sweep: dict[str, list[Any]] = {
        name: each for name, each in parameters.items() if isinstance(each, _Values)
    }
    for name, values in sweep.items():
        for value in values:
            if values.count(value) > 1:
                hint = "--n" if name == "n" else "--set"
                raise BadParameter(f"{name}={value} is given twice", param_hint=hint)
    return {name: each for name, each in parameters.items() if name not in sweep}, sweep
