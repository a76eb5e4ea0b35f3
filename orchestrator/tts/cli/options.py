"""Arguments that several commands share, and which options were given."""

from __future__ import annotations

from typing import Annotated

import typer

DeploymentArgument = Annotated[
    str, typer.Argument(metavar="DEPLOYMENT", help="A deployment file or a bundled name.")
]


def given_options(context: typer.Context) -> set[str]:
    """The names of the parameters that the command line gives, rather than defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}
