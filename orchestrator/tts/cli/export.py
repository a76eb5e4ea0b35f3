"""`tts runs export`: the problems or the completions of runs as one table."""

from __future__ import annotations

from typing import get_args

import typer

from tts.base.errors import RunError
from tts.reports.console import say
from tts.runs.files import replacing
from tts.runs.groups import runs_in
from tts.runs.tables import (
    CompletionRow,
    ProblemRow,
    TableKind,
    as_table,
    completion_rows,
    problem_rows,
    write_table,
)

from .options import look
from .report import spare


def export(options: look.Export) -> None:
    """Run `tts runs export`."""
    runs, out, completions = options.runs, options.out, options.completions
    kind = out.suffix.lower().removeprefix(".") if out else "jsonl"
    if kind not in get_args(TableKind):
        raise typer.BadParameter("must end with .parquet, .csv or .jsonl", param_hint="--out")
    for folder in runs:
        for run, _ in runs_in(folder):
            spare(run, out, "--out")
    of, rows = (CompletionRow, completion_rows) if completions else (ProblemRow, problem_rows)
    if out is None:
        for row in rows(runs):
            typer.echo(as_table([row], kind, of).decode(), nl=False)
        return
    try:
        with replacing(out.expanduser().parent.resolve() / out.name) as stream:
            count = write_table(stream, kind, of, rows(runs))
    except OSError as error:
        raise RunError(
            f"The table {out} cannot be written: {error.strerror or error}.",
            hint="Name another file with --out, in a folder that is there; without --out it goes "
            "to stdout.",
        ) from error
    say(f"{out}: {count:,} {'completions' if completions else 'problems'}")
