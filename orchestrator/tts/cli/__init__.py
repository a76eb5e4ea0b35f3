"""The `tts` command line. Heavy imports stay inside the commands: `tts --help` must be instant.

A command is a function in a module here, an entry below and an example.
"""

from __future__ import annotations

import gc
import sys
from typing import Annotated, Any

import typer

from . import (
    doctor,
    ending,
    engines,
    gateway,
    init,
    keys,
    listing,
    plan,
    report,
    requests,
    runs,
    score,
    serve,
    simulate,
    study,
    tune,
    usage,
)
from .command import Command, CommandGroup, WithDefault
from .ending import ended

_BUILD, _SEARCH, _LOOK, _STUDY = "Build and serve", "Search", "Look at runs", "Study"
_HELP: dict[str, Any] = {"context_settings": {"help_option_names": ["-h", "--help"]}}


def _examples(*commands: str) -> str:
    """The foot of a help text: commands to copy, each on a line of its own."""
    return "\n".join(["Examples:", *(f"  {command}" for command in commands)])


app = typer.Typer(
    name="tts",
    cls=CommandGroup,
    help="Verifier-guided test-time scaling: compile a generator and a process reward model, "
    "serve both with Triton, and search over them.\n\n"
    "DEPLOYMENT is a deployment file or the name of a bundled one, such as demo.",
    epilog=_examples("tts doctor", "tts build-engines demo", 'tts solve "Compute 12 + 30 - 5."'),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    **_HELP,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"tts {version('tts-toolkit')}")  # noqa: T201 - the result that was asked for
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print results and errors only.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("-v", "--verbose", help="Also print log messages and tracebacks of errors."),
    ] = False,
) -> None:
    ending.verbose = verbose
    if verbose:
        import logging

        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    if quiet:
        from tts.reports.console import silence

        silence()


def _command(function: Any, name: str, panel: str, *examples: str) -> None:
    app.command(name, rich_help_panel=panel, epilog=_examples(*examples), cls=Command, **_HELP)(
        function
    )


_command(
    init.init,
    "init",
    _BUILD,
    "tts init mine.yaml",
    "tts init --generator models/Qwen2.5-1.5B-Instruct --verifier models/Qwen2.5-Math-PRM-7B",
    "tts init --generator http://127.0.0.1:8000 --verifier http://127.0.0.1:8001",
)
_command(plan.plan, "plan", _BUILD, "tts plan demo", "tts plan mine.yaml --write")
_command(doctor.lint, "lint", _BUILD, "tts lint llama-1b-prm-8b-h100-bf16")
_command(
    engines.build_engines,
    "build-engines",
    _BUILD,
    "tts build-engines demo",
    "tts build-engines llama-1b-prm-8b-h100-bf16 --dry-run",
)
_command(
    engines.render,
    "render",
    _BUILD,
    "tts render demo",
    "tts render llama-1b-prm-8b-h100-bf16 --manifests out",
)
_command(serve.serve, "serve", _BUILD, "tts serve demo", "tts serve demo --stop")
_gateway = typer.Typer(
    cls=WithDefault,
    help="Serve an OpenAI-compatible API: tts gateway DEPLOYMENT, with the options of tts gateway "
    "serve --help. Its keys, requests and usage.",
    epilog=_examples(
        "tts gateway demo",
        "tts gateway serve --help",
        "tts gateway keys create alice --tokens-per-minute 100000",
        "tts gateway requests --since 1h",
        "tts gateway usage --by key",
    ),
    no_args_is_help=True,
    **_HELP,
)
_gateway.command(
    WithDefault.default,
    cls=Command,
    epilog=_examples(
        "tts gateway demo",
        "tts gateway demo --port 0 --server embedded",
        "tts gateway mine.yaml --endpoint gpu-1:8001 --endpoint gpu-2:8001",
    ),
    **_HELP,
)(gateway.gateway)
_gateway.add_typer(keys.app, name="keys")
_gateway.command(
    "requests",
    cls=Command,
    epilog=_examples(
        "tts gateway requests demo --last 50",
        "tts gateway requests --since 1d --format jsonl | jq 'select(.status >= 500)'",
    ),
    **_HELP,
)(requests.requests)
_gateway.command(
    "usage",
    cls=Command,
    epilog=_examples("tts gateway usage", "tts gateway usage --since 2026-11-01 --by day --by key"),
    **_HELP,
)(usage.usage)
app.add_typer(_gateway, name="gateway", rich_help_panel=_BUILD)
_command(
    runs.solve,
    "solve",
    _SEARCH,
    'tts solve "Compute 12 + 30 - 5."',
    'tts solve demo "Compute 12 + 30 - 5." --n 4 --server embedded',
    "tts solve mine.yaml questions.jsonl",
)
_command(
    runs.bench,
    "bench",
    _SEARCH,
    "tts bench demo --limit 40",
    "tts bench demo --strategy all --n 16",
    "tts bench mine.yaml --dataset math-500 --verifier my_prm.py:score",
    "tts bench --resume runs/RUN",
)
_command(
    score.score,
    "score",
    _SEARCH,
    "tts score demo candidates.jsonl",
    "tts score mine.yaml processbench/gsm8k.json --write",
    "tts score mine.yaml --dataset gsm8k --limit 200 --n 8",
)
_command(
    report.report,
    "report",
    _LOOK,
    "tts report runs/RUN --open",
    "tts report runs/ONE runs/OTHER --format pdf",
    "tts report runs/RUN --follow --open",
)
_runs = typer.Typer(
    cls=CommandGroup,
    help="List, merge, export and convert runs.",
    no_args_is_help=True,
    **_HELP,
)
for _name, _function, *_lines in (
    ("list", report.list_recorded, "tts runs list --json"),
    ("merge", report.merge, "tts runs merge runs/1 runs/2 --out runs/whole"),
    ("export", report.export, "tts runs export runs/RUN --to answers.csv"),
    ("trace", report.trace, "tts runs trace runs/RUN --to run.json"),
):
    _runs.command(_name, cls=Command, epilog=_examples(*_lines), **_HELP)(_function)
app.add_typer(_runs, name="runs", rich_help_panel=_LOOK)
_command(tune.tune, "tune", _STUDY, "tts tune demo", "tts tune mine.yaml --write")
_command(study.study, "study", _STUDY, "tts study demo --quick")
_command(
    simulate.simulate,
    "simulate",
    _STUDY,
    "tts simulate --gpu h100",
    "tts simulate llama-1b-prm-8b-h100-bf16 --placements --concurrency 1,64 --gpus 4",
)
_command(listing.list_names, "list", "Help", "tts list deployments", "tts list strategies --json")
_command(doctor.doctor, "doctor", "Help", "tts doctor", "tts doctor demo")


def main() -> None:
    """Run the command line; whatever happens becomes a sentence and an exit code (`ending`)."""
    try:
        sys.exit(ended(app))
    finally:
        files = sys.modules.get("tts.session.function_files")
        if files and files.loaded:  # what a user's code has open is closed by a last collection
            gc.unfreeze()
        else:  # which takes 0.1 s, and nothing else needs it
            gc.freeze()
