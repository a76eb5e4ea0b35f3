"""`tts calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import usable


def calibrate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            callback=usable,
            metavar="RUN RUN...",
            help="Folders of finished runs over the same problems: one of weighted-best-of-n, "
            "and of each search that auto may choose.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", callback=usable, metavar="FILE", help="The policy's file.")
    ],
    budget: Annotated[
        list[int],
        typer.Option(
            min=1,
            metavar="N",
            help="A mean cost of a problem, in whole chains: a value of --n that the policy is "
            "for. May be repeated.",
            show_default="4, 8, 16, 32, 64",
        ),
    ] = [4, 8, 16, 32, 64],  # noqa: B006 - typer copies it
) -> None:
    """Make a policy for --strategy auto from finished runs, to be given as --set policy=FILE.

    Take other problems than those whose accuracy will be reported.
    """
    from tts.build.errors import ConfigError
    from tts.lab.bench.calibration import make_policy
    from tts.reports.console import say

    policy = make_policy(runs, budget)
    try:
        out.write_text(policy.model_dump_json(indent=2, exclude_none=True) + "\n", "utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror or error}.") from error
    say(f"{out}: {policy.made_from}; use it with --strategy auto --set policy={out}")
