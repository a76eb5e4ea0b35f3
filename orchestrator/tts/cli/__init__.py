"""The `tts` command line. `tts --help` is instant: a command is imported when it is run.

A command is an entry below: its name, its options, its function, the first line of its help,
examples.
"""

from __future__ import annotations

import gc
import sys
from itertools import chain
from typing import Annotated, Any

import typer

from . import ending
from .command import SETTINGS, Command, CommandGroup, WithDefault, examples
from .ending import exit_code_of

_KEYS = CommandGroup.of(
    "keys",
    "Make, list, change, rotate and revoke the API keys of gateways (docs/guides/gateway.md).",
    Command(
        "create",
        "gateway:CreateKey",
        "gateway_records:create",
        "Make a key and print it, this once: only its hash is kept.",
    ),
    Command(
        "list",
        "gateway:ListKeys",
        "gateway_records:list_keys",
        "List keys with limits, last use, and who made them; the keys themselves are not known.",
    ),
    Command(
        "set",
        "gateway:SetKey",
        "gateway_records:change",
        "Change limits, models, expiry or note of a key; what is not named stays.",
        "tts gateway keys set alice --tokens-per-day 500000 --expires never",
    ),
    Command(
        "rotate",
        "gateway:RotateKey",
        "gateway_records:rotate",
        "Give a key a new secret and print it, this once; name, limits and use stay.",
        "tts gateway keys rotate alice --grace 24h",
    ),
    Command(
        "revoke",
        "gateway:RevokeKey",
        "gateway_records:revoke",
        "Make a key invalid. Running gateways refuse it within 0.2 s.",
    ),
)
_GATEWAY = WithDefault.of(
    "gateway",
    "Serve an OpenAI-compatible API of a deployment; or look after its keys, requests and usage.",
    Command(
        WithDefault.default,
        "gateway:Gateway",
        "gateway:gateway",
        "Serve generation and searches as an OpenAI-compatible API until Ctrl-C.",
        "tts gateway demo",
        "tts gateway demo --port 0 --server embedded",
        "tts gateway mine.yaml --endpoint gpu-1:8001 --endpoint gpu-2:8001",
    ),
    Command(
        "requests",
        "gateway:Requests",
        "gateway_records:requests",
        "Show or export the requests of gateways, also while they run.",
        "tts gateway requests demo --last 50",
        "tts gateway requests --since 1d --format jsonl | jq 'select(.status >= 500)'",
    ),
    Command(
        "usage",
        "gateway:Usage",
        "gateway_records:usage",
        "Add up the requests and tokens of each API key; days are UTC.",
        "tts gateway usage",
        "tts gateway usage --since 2026-11-01 --by day --by key",
    ),
    Command(
        "backup",
        "gateway:Backup",
        "gateway_records:backup",
        "Copy keys, usage and requests into a new file, also while gateways run.",
        "tts gateway backup gateway-2026-11-29.db",
    ),
    _KEYS,
    lines=(
        "tts gateway demo",
        "tts gateway keys create alice --tokens-per-minute 100000",
        "tts gateway requests --since 1h",
        "tts gateway usage --by key",
    ),
)
_RUNS = CommandGroup.of(
    "runs",
    "List, merge, export and convert runs.",
    Command(
        "list",
        "look:ListRuns",
        "report:list_recorded",
        "List the runs that were recorded, newest first.",
        "tts runs list --json",
    ),
    Command(
        "merge",
        "look:Merge",
        "report:merge",
        "Merge the shards of a run into one folder: trees, answers and digest of the whole run.",
        "tts runs merge runs/1 runs/2 --out runs/whole",
    ),
    Command(
        "export",
        "look:Export",
        "report:export",
        "Write the problems of runs, or their completions, as one table for pandas and polars.",
        "tts runs export runs/RUN --out problems.parquet",
        "tts runs export runs/ONE runs/OTHER --completions --out completions.csv",
    ),
    Command(
        "trace",
        "look:Trace",
        "report:trace",
        "Write a run's timeline as Chrome's trace JSON: requests by slot, decisions, counters.",
        "tts runs trace runs/RUN --to run.json",
    ),
)
_BUILD = (
    Command(
        "init",
        "build:Init",
        "init:init",
        "Write a deployment file for your models and this machine, with each field explained.",
        "tts init mine.yaml",
        "tts init --generator models/Qwen2.5-1.5B-Instruct --verifier models/Qwen2.5-Math-PRM-7B",
        "tts init --generator http://127.0.0.1:8000 --verifier http://127.0.0.1:8001",
    ),
    Command(
        "plan",
        "build:Plan",
        "plan:plan",
        "Plan a deployment's memory, on GPUs or on this machine; needs no GPU.",
        "tts plan demo",
        "tts plan mine.yaml --write",
    ),
    Command(
        "lint",
        "build:Lint",
        "doctor:lint",
        "Check everything about a deployment that needs no GPU; fails if there are errors.",
        "tts lint llama-1b-prm-8b-h100-bf16",
    ),
    Command(
        "build-engines",
        "build:BuildEngines",
        "engines:build_engines",
        "Compile both checkpoints into engines; unchanged ones are skipped.",
        "tts build-engines demo",
        "tts build-engines llama-1b-prm-8b-h100-bf16 --dry-run",
    ),
    Command(
        "render",
        "build:Render",
        "engines:render",
        "Render the Triton model repository of a deployment, and manifests.",
        "tts render demo",
        "tts render llama-1b-prm-8b-h100-bf16 --manifests out",
    ),
    Command(
        "serve",
        "build:Serve",
        "engines:serve",
        "Start the servers of a deployment and keep them running until Ctrl-C.",
        "tts serve demo",
        "tts serve demo --stop",
    ),
    _GATEWAY,
)
_SEARCH = (
    Command(
        "solve",
        "search:Solve",
        "runs:solve",
        'Solve one problem and watch its tree grow: tts solve [DEPLOYMENT] "QUESTION".',
        'tts solve "Compute 12 + 30 - 5."',
        'tts solve demo "Compute 12 + 30 - 5." --n 4 --server embedded',
        "tts solve mine.yaml questions.jsonl",
    ),
    Command(
        "bench",
        "search:Bench",
        "runs:bench",
        "Solve the problems of a dataset; without a running server, one is started.",
        "tts bench demo --limit 40",
        "tts bench demo --strategy all --n 16",
        "tts bench mine.yaml --dataset math-500 --verifier my_prm.py:score",
        "tts bench --resume runs/RUN",
    ),
    Command(
        "score",
        "search:Score",
        "score:score",
        "Score existing solutions, rank candidates, and measure the verifier against labels.",
        "tts score demo candidates.jsonl",
        "tts score mine.yaml processbench/gsm8k.json --write",
        "tts score mine.yaml --dataset gsm8k --limit 200 --n 8",
    ),
)
_LOOK = (
    Command(
        "report",
        "look:Report",
        "report:report",
        "Print the tables of a run, or compare several, and write report.html.",
        "tts report runs/RUN --open",
        "tts report runs/ONE runs/OTHER --format pdf",
        "tts report runs/RUN --follow --open",
    ),
    _RUNS,
)
_STUDY = (
    Command(
        "tune",
        "study:Tune",
        "study:tune",
        "Measure throughput over load, and propose how much work to keep in flight.",
        "tts tune demo",
        "tts tune mine.yaml --write",
    ),
    Command(
        "study",
        "study:Study",
        "study:study",
        "Run many variants of a deployment and see what its two engines do, and why.",
        "tts study demo --quick",
    ),
    Command(
        "simulate",
        "study:Simulate",
        "simulate:simulate",
        "Predict how schedules compare, for a deployment or a typical pair; needs no GPU.",
        "tts simulate --gpu h100",
        "tts simulate llama-1b-prm-8b-h100-bf16 --placements --concurrency 1,64 --gpus 4",
    ),
)
_HELP = (
    Command(
        "list",
        "look:List",
        "listing:list_names",
        "List the bundled deployments, the strategies with their parameters, or the datasets.",
        "tts list deployments",
        "tts list strategies --json",
    ),
    Command(
        "doctor",
        "look:Doctor",
        "doctor:doctor",
        "Say what this machine can run, what is missing, and the command to type next.",
        "tts doctor",
        "tts doctor demo",
    ),
)
_PANELS: dict[str, tuple[Command | CommandGroup, ...]] = {
    "Build and serve": _BUILD,
    "Search": _SEARCH,
    "Look at runs": _LOOK,
    "Study": _STUDY,
    "Help": _HELP,
}


class _Program(CommandGroup):
    """`tts` itself, with its commands."""

    def __init__(self, **settings: Any) -> None:
        for panel, commands in _PANELS.items():
            for command in commands:
                command.rich_help_panel = panel
        super().__init__(**settings | {"commands": [*chain(*_PANELS.values())]})


app = typer.Typer(
    name="tts",
    cls=_Program,
    help="Verifier-guided test-time scaling: run a generator and a process reward model, compiled "
    "on Triton or on servers such as vLLM, and search over them.\n\n"
    "DEPLOYMENT is a deployment file or the name of a bundled one, such as demo.",
    epilog=examples("tts doctor", "tts build-engines demo", 'tts solve "Compute 12 + 30 - 5."'),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    **SETTINGS,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
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


def main() -> None:
    """Run the command line; whatever happens becomes a sentence and an exit code (`ending`)."""
    try:
        sys.exit(exit_code_of(app))
    finally:
        files = sys.modules.get("tts.session.functions")
        if files and files.loaded:  # what a user's code has open is closed by a last collection
            gc.unfreeze()
        else:  # which takes 0.1 s, and nothing else needs it
            gc.freeze()
