"""`tts merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import usable


def merge(
    shards: Annotated[
        list[Path],
        typer.Argument(
            callback=usable,
            metavar="RUN RUN...",
            help="Folders of finished runs of tts bench --shard i/N, every i of one N.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", callback=usable, help="The folder of the whole run.")
    ],
) -> None:
    """Merge the shards of a run: one folder with the trees, answers and digest of the whole run."""
    from tts.lab.bench.sharded_run import merge_runs
    from tts.reports.console import say
    from tts.reports.live_tree import report_run
    from tts.runs.summary import read_summary

    folder = merge_runs(shards, out)
    report_run([folder], [read_summary(folder)])
    say(f"figures and search trees, as a page: tts report --open {folder}")
