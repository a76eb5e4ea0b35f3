"""Arguments that several commands share, and which options were given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tts.base.choices import ServerKind
from tts.base.input_files import Unreadable, require_path

from .completion import datasets, deployments

DeploymentArgument = Annotated[
    str,
    typer.Argument(
        metavar="DEPLOYMENT",
        help="A deployment file or a bundled name.",
        autocompletion=deployments,
    ),
]

OptionalDeployment = Annotated[
    str | None,
    typer.Argument(
        metavar="DEPLOYMENT",
        help="A deployment file or a bundled name.",
        autocompletion=deployments,
    ),
]

DatasetOption = Annotated[
    str,
    typer.Option(
        "--dataset",
        autocompletion=datasets,
        help="demo, math-500, gsm8k, aime-2024, a dataset of the Hugging Face hub "
        "(OWNER/NAME[:CONFIG][:SPLIT]), the folder of its clone, or a JSONL, JSON, CSV or "
        "Parquet file (docs/reference/datasets.md).",
    ),
]

ServerOption = Annotated[
    ServerKind | None,
    typer.Option(
        "--server",
        help="What runs the engines: Triton, or processes of this command, which start faster and "
        "serve nobody else (target openvino).",
        show_default="server.kind of the deployment",
    ),
]

VerifierOption = Annotated[
    str | None,
    typer.Option(
        "--verifier",
        metavar="FILE.py:NAME",
        help="A Python function (question, steps) -> score of the last step, or (chains) for a "
        "batch, instead of the deployment's verifier (docs/start/your-own-models.md).",
        show_default="the deployment's",
    ),
]

JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON document, for programs (docs/reference/cli.md#json-output)."
    ),
]

_Paths = TypeVar("_Paths", Path | None, list[Path])


def usable(value: _Paths) -> _Paths:
    """The callback of options that take paths: refuses one that no file can have."""
    for path in value if isinstance(value, list) else [value]:
        try:
            require_path(str(path or ""))
        except Unreadable as error:
            raise typer.BadParameter(f"{str(path)!r:.100}: {error}") from error
    return value


def given_options(context: typer.Context) -> set[str]:
    """The names of the parameters that the command line gives, rather than defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}
