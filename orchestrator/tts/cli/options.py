"""Arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

DeploymentArgument = Annotated[
    str, typer.Argument(metavar="DEPLOYMENT", help="A deployment file or a bundled name.")
]
