"""Options of the commands, as a dataclass for each, and here what several commands share.

Help and completion need no more than these modules, which therefore import nothing that takes time:
a command's function, which takes its options, stands in a module of its own.

| module | options of |
|---|---|
| build | init, plan, lint, build-engines, render, serve |
| search | solve, bench, score |
| look | report, runs, list, doctor |
| study | tune, study, simulate |
| gateway | gateway with its requests, usage and keys |
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer
from typer import BadParameter

from tts.base.choices import ServerKind, SpeculationName
from tts.base.input_files import Unreadable, require_path

from ..command import by_name

ALL = "all"
"""The word for every strategy, one after the other."""

_Paths = TypeVar("_Paths", Path | None, list[Path])


def usable(value: _Paths) -> _Paths:
    """The callback of options that take paths: refuses one that no file can have."""
    for path in value if isinstance(value, list) else [value]:
        try:
            require_path(str(path or ""))
        except Unreadable as error:
            raise BadParameter(f"{str(path)!r:.100}: {error}") from error
    return value


def completed(kind: str) -> Callable[[str], list[str]]:
    """The completion of a kind of names (`completion`), imported when a shell asks for it."""

    def complete(incomplete: str) -> list[str]:
        names: list[str] = by_name(f"completion:{kind}")(incomplete)
        return names

    return complete


def deployment_argument(text: str, **settings: Any) -> Any:
    """An argument that names a deployment, or several, with its help."""
    complete = completed("deployments")
    return typer.Argument(metavar="DEPLOYMENT", help=text, autocompletion=complete, **settings)


_DEPLOYMENT: Any = deployment_argument("A deployment file or a bundled name.")
DeploymentArgument = Annotated[str, _DEPLOYMENT]
OptionalDeployment = Annotated[str | None, _DEPLOYMENT]

DatasetOption = Annotated[
    str,
    typer.Option(
        "--dataset",
        autocompletion=completed("datasets"),
        help="demo, math-500, gsm8k, aime-2024, a dataset of the Hugging Face hub "
        "(OWNER/NAME[:CONFIG][:SPLIT]), the folder of its clone, or a JSONL, JSON, CSV or "
        "Parquet file (docs/reference/datasets.md).",
    ),
]

ServerOption = Annotated[
    ServerKind | None,
    typer.Option(
        "--server",
        help="Where compiled engines run: under Triton, or embedded in this command, which starts "
        "faster (target openvino).",
        show_default="server.kind of the deployment",
    ),
]

VerifierOption = Annotated[
    str | None,
    typer.Option(
        "--verifier",
        metavar="FILE.py:NAME",
        help="A Python function that scores in place of the deployment's verifier "
        "(docs/start/your-own-models.md).",
        show_default="the deployment's",
    ),
]

JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON document, for programs (docs/reference/cli.md#json-output)."
    ),
]
NOption = Annotated[
    int | None,
    typer.Option(
        "--n",
        "-n",
        help="Completions per problem.",
        show_default="16; greedy: 1; auto: at most 256",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of what is sampled.")]


def path_option(text: str, *names: str, metavar: str | None = None, **settings: Any) -> Any:
    """An option that names a file or a folder, with its help."""
    return typer.Option(*names, callback=usable, metavar=metavar, help=text, **settings)


def out_option(text: str) -> Any:
    """The option that names the folder of a result, with its help."""
    return path_option(text, "--out", show_default="a new one under runs/")


OutOption = Annotated[Path | None, out_option("Run folder.")]


def run_option(text: str, metavar: str = "RUN", *, show_default: bool | str = True) -> Any:
    """An option that names a recorded run or a folder of them, with its help."""
    complete = completed("runs")
    return path_option(text, metavar=metavar, autocompletion=complete, show_default=show_default)


ParametersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter of the strategy, such as temperature=0.7 or beam_width=2. With several "
        "strategies, it goes to each one that has it.",
    ),
]

BudgetOption = Annotated[
    int | None,
    typer.Option(
        "--budget-tokens",
        min=1,
        help="Generated tokens of a problem, critiques included. In bench without --n: an average "
        "per problem, by which n is chosen. Otherwise: a hard limit per problem.",
        show_default="no limit",
    ),
]
DeadlineOption = Annotated[
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

EndpointsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoint",
        metavar="HOST:PORT",
        help="A server of the deployment to use. Repeat for several.",
        show_default="those of the deployment, or of this machine",
    ),
]

SpeculationOption = Annotated[
    SpeculationName,
    typer.Option(
        "--speculation",
        metavar="|".join(get_args(SpeculationName)),
        help="Fill idle slots of the generator with steps that may not be needed; auto: while it "
        "pays. The trees are the same.",
    ),
]


def given_options(context: typer.Context) -> set[str]:
    """The names of the parameters that the command line gives, rather than defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}
