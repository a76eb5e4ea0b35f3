"""Options of the commands that search and score: solve, bench, score."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

import typer

from tts.base.choices import AnswerKind, ScheduleName
from tts.strategies.names import STRATEGY_NAMES

from . import (
    ALL,
    BudgetOption,
    DatasetOption,
    DeadlineOption,
    DeploymentArgument,
    EndpointsOption,
    JsonOption,
    NOption,
    OptionalDeployment,
    OutOption,
    ParametersOption,
    SeedOption,
    ServerOption,
    SpeculationOption,
    VerifierOption,
    completed,
    out_option,
    run_option,
    usable,
)

_NAMES = ", ".join(STRATEGY_NAMES)
STRATEGY = "beam-search"
"""The strategy of a search for which none is named."""


@dataclass(frozen=True, kw_only=True)
class Solve:
    """Solve one problem and watch its tree grow: tts solve [DEPLOYMENT] "QUESTION".

    Every problem of a file is solved; it needs no answers.
    """

    context: typer.Context
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="QUESTION",
            autocompletion=completed("deployments"),
            help="The problem, in quotes, or a JSONL, JSON, CSV or Parquet file of problems. A "
            "deployment may stand before it; default: the bundled one that is served, or "
            "demo.",
            show_default=False,
        ),
    ]
    deployment: Annotated[
        str | None,
        typer.Option(
            "--deployment",
            "-d",
            help="Another way to name the deployment.",
            autocompletion=completed("deployments"),
        ),
    ] = None
    seed: SeedOption = 0
    strategy: Annotated[
        str,
        typer.Option(help=f"{_NAMES}; or FILE.py:NAME.", autocompletion=completed("strategies")),
    ] = STRATEGY
    speculation: SpeculationOption = "auto"
    n: NOption = None
    parameters: ParametersOption = None
    budget_tokens: BudgetOption = None
    deadline: DeadlineOption = None
    verifier: VerifierOption = None
    endpoints: EndpointsOption = None
    server: ServerOption = None
    out: OutOption = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Solve the problems of a dataset; without a running server, one is started."""

    context: typer.Context
    deployment: OptionalDeployment = None
    dataset: DatasetOption = "demo"
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOLDS=COLUMN,...",
            help="A file's columns of problem, answer, id, level and choices, such as "
            "problem=question,answer=final.",
            show_default="the usual names",
        ),
    ] = None
    answers: Annotated[
        AnswerKind | None,
        typer.Option(
            metavar="KIND",
            help=f"How a file's answers are written: {', '.join(get_args(AnswerKind))}.",
            show_default="text, or what follows ####",
        ),
    ] = None
    per_level: Annotated[
        int | None,
        typer.Option(min=1, help="Problems to draw from each level.", show_default="all"),
    ] = None
    dataset_seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of generated problems and of --per-level.", show_default="as --seed"
        ),
    ] = None
    start: Annotated[
        int | None,
        typer.Option(
            min=0, help="First problem, counted from 0.", show_default="the dataset's first"
        ),
    ] = None
    limit: Annotated[
        int | None, typer.Option(help="Problems to solve.", show_default="all; demo: 100")
    ] = None
    seed: SeedOption = 0
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=completed("strategies_or_all"),
            help=f"{_NAMES}; FILE.py:NAME; or {ALL}. Repeat it to compare several; those of files "
            "are then a Strategy or a SearchConfig.",
            show_default=STRATEGY,
        ),
    ] = None
    schedule: Annotated[
        ScheduleName,
        typer.Option(
            metavar="NAME", help=f"Order of the work: {', '.join(get_args(ScheduleName))}."
        ),
    ] = "decoupled"
    speculation: SpeculationOption = "auto"
    in_flight: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most problems at a time.",
            show_default="as many as keep the generator busy",
        ),
    ] = None
    n: Annotated[
        str | None,
        typer.Option(
            "--n",
            "-n",
            metavar="N,...",
            help="Completions per problem. Several, such as 1,4,16, are a sweep (see --set).",
            show_default="16; greedy: 1; auto: at most 256",
        ),
    ] = None
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE,...",
            help="A parameter of the strategy, such as temperature=0.7 or beam_width=2. With "
            "several strategies, it goes to each one that has it. Several values, such as "
            "temperature=0.4,0.8, are a sweep: a run for each combination. Commas in quotes, "
            "brackets, braces, answer_regex or answer_schema do not separate.",
        ),
    ] = None
    budget_tokens: BudgetOption = None
    deadline: DeadlineOption = None
    verifier: VerifierOption = None
    endpoints: EndpointsOption = None
    server: ServerOption = None
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="i/N",
            help="Solve every N-th problem, from the i-th on; tts runs merge joins the N runs.",
            show_default="all",
        ),
    ] = None
    ray: Annotated[
        bool,
        typer.Option(
            "--ray",
            help="Solve a shard for each --endpoint on a Ray cluster (RAY_ADDRESS, or this "
            "machine), and merge them.",
        ),
    ] = False
    out: OutOption = None
    resume: Annotated[
        Path | None, run_option("Continue the run, comparison or sweep there.", "DIR")
    ] = None
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="With --resume: cut a damaged log off where the damage begins (a copy is kept), "
            "and solve the rest again.",
        ),
    ] = False
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score existing solutions, rank candidates, and measure the verifier against labels.

    Only the verifier's engine is started. Labels: docs/guides/know-your-verifier.md; candidates:
    docs/start/best-of-candidates.md.
    """

    context: typer.Context
    deployment: DeploymentArgument
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            callback=usable,
            help="Solutions: a JSONL, JSON, CSV or Parquet file (ProcessBench, PRM800K or "
            "Math-Shepherd as published; fields problem, steps, labels; or problem, "
            "candidates), or the folder of a finished run.",
            show_default=False,
        ),
    ] = None
    dataset: Annotated[
        str | None,
        typer.Option(
            autocompletion=completed("datasets"),
            help="Instead of FILE: sample answers to a dataset's problems, and score their steps.",
        ),
    ] = None
    limit: Annotated[int, typer.Option(min=1, help="With --dataset: problems to sample.")] = 200
    n: Annotated[
        int, typer.Option("--n", "-n", min=1, help="With --dataset: answers per problem.")
    ] = 8
    seed: Annotated[int, typer.Option(help="With --dataset: seed.")] = 0
    verifier: VerifierOption = None
    endpoints: EndpointsOption = None
    server: ServerOption = None
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Write verifier.calibration to the deployment file: how well scores tell right "
            "from wrong, and which probability each stands for, where that holds on other "
            "problems.",
        ),
    ] = False
    out: Annotated[
        Path | None,
        out_option("Folder of the scores; the same command continues in it after an interruption."),
    ] = None
    as_json: JsonOption = False
