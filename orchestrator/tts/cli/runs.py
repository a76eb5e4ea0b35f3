"""`tts bench` and `tts solve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from tts.base.choices import AnswerKind
from tts.base.input_files import Unreadable, is_file, require_path
from tts.base.user_paths import is_folder
from tts.base.yaml_text import parse_yaml
from tts.build.spec import bundled_deployments, load_deployment
from tts.datasets.options import Shard
from tts.datasets.rows import parse_columns
from tts.lab.bench.group_run import resume_group, run_all
from tts.lab.bench.sharded_run import run_on_ray
from tts.lab.bench.single_run import default_deployment, resume_bench, run_bench, run_solve
from tts.reports.console import say
from tts.reports.live_tree import LiveTree
from tts.reports.progress import Bars
from tts.reports.terminal import print_answers, print_report
from tts.runs.compare import Comparison, compare
from tts.runs.config import FunctionSource, Limits, RunConfig
from tts.runs.folder import PROBLEMS
from tts.runs.groups import is_group
from tts.scheduling import ScheduleName, SpeculationName
from tts.session.functions import names_function, source_of, sources_of
from tts.strategies.names import STRATEGY_NAMES, TEXT_PARAMETERS

from .command import command_line
from .completion import deployments, runs, strategies, strategies_or_all
from .documents.runs import BenchDocument, SolveDocument
from .json_output import print_json
from .options import (
    DatasetOption,
    JsonOption,
    OptionalDeployment,
    ServerOption,
    VerifierOption,
    given_options,
    usable,
)

ALL = "all"

_NAMES = ", ".join(STRATEGY_NAMES)
_STRATEGY = "beam-search"
_N = Annotated[
    int | None,
    typer.Option(
        "--n",
        "-n",
        help="Completions per problem.",
        show_default="16; greedy: 1; auto: at most 256",
    ),
]
_Seed = Annotated[int, typer.Option("--seed", help="Seed of the run: of what is sampled.")]
_Out = Annotated[
    Path | None,
    typer.Option(
        "--out", callback=usable, help="Run folder.", show_default="a new one under runs/"
    ),
]
ParametersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Another parameter of the strategy, such as temperature=0.7 or beam_width=2. With "
        "several strategies, it goes to each one that has this parameter.",
    ),
]

_Budget = Annotated[
    int | None,
    typer.Option(
        "--budget-tokens",
        min=1,
        help="Generated tokens of a problem, critiques included. In bench without --n: an average "
        "per problem, by which n is chosen. Otherwise: a hard limit per problem.",
        show_default="no limit",
    ),
]
_Deadline = Annotated[
    float | None,
    typer.Option(
        "--deadline",
        min=0,
        metavar="SECONDS",
        help="Stop each problem after so many seconds and take its best answer so far. Results "
        "then depend on speed.",
        show_default="no limit",
    ),
]

_Endpoints = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoint",
        metavar="HOST:PORT",
        help="A server of the deployment to use; give it several times for several servers.",
        show_default="those of the deployment, or of this machine",
    ),
]

SpeculationOption = Annotated[
    SpeculationName,
    typer.Option(
        "--speculation",
        metavar="|".join(get_args(SpeculationName)),
        help="Fill the generator's empty slots with steps that may not be needed (schedules "
        "alternating and decoupled); auto: while it pays. The trees are the same.",
    ),
]


def bench(
    context: typer.Context,
    deployment: OptionalDeployment = None,
    dataset: DatasetOption = "demo",
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="HOLDS=COLUMN,...",
            help="Which columns of a file hold problem, answer, id, level and choices, such as "
            "problem=question,answer=final.",
            show_default="by their usual names",
        ),
    ] = None,
    answers: Annotated[
        AnswerKind | None,
        typer.Option(
            "--answers",
            metavar="KIND",
            help=f"How a file's answers are written: {', '.join(get_args(AnswerKind))}.",
            show_default="as text, or after ####",
        ),
    ] = None,
    per_level: Annotated[
        int | None,
        typer.Option(
            "--per-level",
            min=1,
            help="Problems to draw from each level, by the dataset's seed.",
            show_default="all",
        ),
    ] = None,
    dataset_seed: Annotated[
        int | None,
        typer.Option(
            "--dataset-seed",
            help="Seed of generated problems, and of what --per-level draws.",
            show_default="that of --seed",
        ),
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(
            "--start",
            min=0,
            help="First problem to solve, counted from 0.",
            show_default="the dataset's first",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", help="Problems to solve.", show_default="all; demo: 100"),
    ] = None,
    seed: _Seed = 0,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            autocompletion=strategies_or_all,
            help=f"{_NAMES}; FILE.py:NAME; or {ALL}. Several, and all: one after the other, "
            "compared side by side (of a file: a Strategy or a SearchConfig).",
            show_default=_STRATEGY,
        ),
    ] = None,
    schedule: Annotated[
        ScheduleName,
        typer.Option(
            "--schedule",
            metavar="NAME",
            help=f"In which order work is sent: {', '.join(get_args(ScheduleName))}.",
        ),
    ] = "decoupled",
    speculation: SpeculationOption = "auto",
    in_flight: Annotated[
        int | None,
        typer.Option(
            "--in-flight",
            min=1,
            help="Problems that run at a time at most.",
            show_default="as many as keep the generator busy",
        ),
    ] = None,
    n: _N = None,
    parameters: ParametersOption = None,
    budget_tokens: _Budget = None,
    deadline: _Deadline = None,
    verifier: VerifierOption = None,
    endpoints: _Endpoints = None,
    server: ServerOption = None,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="i/N",
            help="Solve every N-th of the problems, from the i-th on: one of N runs to be merged "
            "by tts runs merge.",
            show_default="all",
        ),
    ] = None,
    ray: Annotated[
        bool,
        typer.Option(
            "--ray",
            help="Solve shards of the run by processes on a Ray cluster (RAY_ADDRESS, or this "
            "machine), one for each --endpoint, and merge them.",
        ),
    ] = False,
    out: _Out = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            callback=usable,
            autocompletion=runs,
            metavar="DIR",
            help="Continue the run or comparison there.",
        ),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="With --resume: cut the log off where damage begins, keeping a copy, and compute "
            "again what followed.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Solve the problems of a dataset; without a running server, one is started for the run."""
    servers = tuple(endpoints or ())
    if resume is not None and ray:
        raise typer.BadParameter("give the options of the run and its --out", param_hint="--ray")
    if resume is not None and (refused := sorted(_of_new_runs(context, strategy or []))):
        raise typer.BadParameter(
            "a run goes on as it was asked for; leave this out, or start a new run",
            param_hint=", ".join(f"--{name.replace('_', '-')}" for name in refused),
        )
    if repair and resume is None:
        raise typer.BadParameter("goes with --resume DIR", param_hint="--repair")
    if resume is not None:
        carry_on = resume_group if is_group(resume) else resume_bench
        with Bars() as observer:
            folder = carry_on(
                resume,
                deployment,
                observer,
                repair=repair,
                endpoints=servers,
                server=server,
                sources=given_sources(strategy or [], verifier, deployment),
            )
    elif deployment is None:
        raise typer.BadParameter("name one, or --resume a run", param_hint="DEPLOYMENT")
    else:
        compared = _compared(strategy or [])
        search = ALL if compared else (strategy or [_STRATEGY])[0]
        config = RunConfig(
            deployment_source=deployment,
            dataset=dataset,
            limit=limit,
            seed=seed,
            strategy=search,
            parameters=given_parameters(n, parameters),
            schedule=schedule,
            speculation=speculation,
            in_flight=in_flight,
            dataset_seed=dataset_seed,
            columns={str(role): name for role, name in parse_columns(columns or []).items()},
            answers=answers,
            per_level=per_level,
            start=start,
            shard=str(Shard.parse(shard)) if shard is not None else None,
            limits=Limits(budget_tokens, deadline),
            server=server,
            sources=given_sources(strategy or [], verifier, deployment),
            command=command_line(context),
        )
        with Bars() as observer:
            if config.strategy == ALL and not ray:
                folder = run_all(config, out, observer, names=compared, endpoints=servers)
            else:
                run = run_on_ray if ray else run_bench
                folder = run(config, out, observer, endpoints=servers)
    comparison = compare([folder])
    if as_json:
        _print_document(comparison, folder)
    else:
        print_report(comparison)
    say(f"figures and search trees, as a page: tts report --open {folder}")


def solve(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="QUESTION",
            autocompletion=deployments,
            help="The problem to solve, in quotes, or a JSONL, JSON, CSV or Parquet file of "
            "problems; optionally preceded by a deployment: a file or a bundled name. Default: the "
            "bundled deployment that is served now, or demo.",
            show_default=False,
        ),
    ],
    deployment: Annotated[
        str | None,
        typer.Option(
            "--deployment",
            "-d",
            help="Another way to name the deployment.",
            autocompletion=deployments,
        ),
    ] = None,
    seed: _Seed = 0,
    strategy: Annotated[
        str,
        typer.Option("--strategy", help=f"{_NAMES}; or FILE.py:NAME.", autocompletion=strategies),
    ] = _STRATEGY,
    speculation: SpeculationOption = "auto",
    n: _N = None,
    parameters: ParametersOption = None,
    budget_tokens: _Budget = None,
    deadline: _Deadline = None,
    verifier: VerifierOption = None,
    endpoints: _Endpoints = None,
    server: ServerOption = None,
    out: _Out = None,
    as_json: JsonOption = False,
) -> None:
    """Solve one problem and watch its tree grow: tts solve [DEPLOYMENT] "QUESTION".

    Of a file every problem is solved, as by tts bench --dataset; answers are not needed in it.
    """
    *names, question = words
    is_file = _is_file_of_problems(question)
    if len(names) + (deployment is not None) > 1:
        raise typer.BadParameter(
            "give one deployment and one question, in quotes", param_hint="QUESTION"
        )
    source = deployment or (names[0] if names else default_deployment())
    config = RunConfig(
        deployment_source=source,
        dataset=question if is_file else PROBLEMS,
        seed=seed,
        strategy=strategy,
        parameters=given_parameters(n, parameters),
        speculation=speculation,
        limits=Limits(budget_tokens, deadline),
        server=server,
        sources=given_sources([strategy], verifier, source),
        command=command_line(context),
    )
    servers = tuple(endpoints or ())
    if is_file:
        with Bars() as observer:
            folder = run_bench(config, out, observer, endpoints=servers)
        comparison = compare([folder])
        if as_json:
            _print_document(comparison, folder)
        else:
            print_answers(comparison.rows[0].answers)
        say(f"the answers as tables: {folder}/answers.csv, answers.jsonl")
        return
    with LiveTree(question) as tree:
        result, folder = run_solve(question, config, out, tree, tree.step, endpoints=servers)
    if as_json:
        print_json(SolveDocument.of(result, folder))
    else:
        tree.print_answer(result)
    say(f"run folder: {folder}")


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
    """Whether the last word of `tts solve` names a file of problems, and not a question.

    Raises BadParameter for the name of a deployment, for a folder, and for a file of problems that
    is not there.
    """
    try:
        require_path(text)
    except Unreadable:  # a question may be long, or begin with ~
        return False
    suffix = Path(text).suffix.lower()
    there = is_file(Path(text).expanduser())
    if text in bundled_deployments() or (there and suffix in (".yaml", ".yml")):
        raise typer.BadParameter(
            f"{text} is a deployment: the question comes after it", param_hint="QUESTION"
        )
    if is_folder(Path(text).expanduser()):
        raise typer.BadParameter(
            f"{text} is a folder: name a file of problems in it, or tts bench --dataset {text}",
            param_hint="QUESTION",
        )
    if not there and suffix in (".jsonl", ".json", ".csv", ".tsv", ".parquet") and " " not in text:
        raise typer.BadParameter(f"there is no file {text}", param_hint="QUESTION")
    return there


def _compared(strategies: list[str]) -> tuple[str, ...]:
    """The strategies that are to be compared; none where one or all are asked for.

    Raises BadParameter for what no comparison can hold.
    """
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
            raise typer.BadParameter(what, param_hint="--strategy")
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


def given_parameters(n: int | None, assignments: list[str] | None) -> dict[str, Any]:
    """A strategy's parameters as `--n` and `--set NAME=VALUE` give them."""
    parameters: dict[str, Any] = {} if n is None else {"n": n}
    for assignment in assignments or []:
        name, separator, value = assignment.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{assignment!r} is not NAME=VALUE", param_hint="--set")
        name = name.strip()
        if name in parameters:
            raise typer.BadParameter(f"{name} is given more than once", param_hint="--set")
        try:
            parameters[name] = value if name in TEXT_PARAMETERS else parse_yaml(value)
        except Unreadable as error:
            raise typer.BadParameter(f"{assignment!r:.100}: {error}", param_hint="--set") from error
    return parameters
