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
    usable,
)

_NAMES = ", ".join(STRATEGY_NAMES)
STRATEGY = "beam-search"
"""The strategy of a search for which none is named."""


@dataclass(frozen=True, kw_only=True)
class Solve:
    """Solve one problem and watch its tree grow: tts solve [DEPLOYMENT] "QUESTION".

    Of a file every problem is solved, as by tts bench --dataset; answers are not needed in it.
    """

    context: typer.Context
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="QUESTION",
            autocompletion=completed("deployments"),
            help="The problem to solve, in quotes, or a JSONL, JSON, CSV or Parquet file of "
            "problems; optionally preceded by a deployment: a file or a bundled name. Default: the "
            "bundled deployment that is served now, or demo.",
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
    """Solve the problems of a dataset; without a running server, one is started for the run."""

    context: typer.Context
    deployment: OptionalDeployment = None
    dataset: DatasetOption = "demo"
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOLDS=COLUMN,...",
            help="Which columns of a file hold problem, answer, id, level and choices, such as "
            "problem=question,answer=final.",
            show_default="by their usual names",
        ),
    ] = None
    answers: Annotated[
        AnswerKind | None,
        typer.Option(
            metavar="KIND",
            help=f"How a file's answers are written: {', '.join(get_args(AnswerKind))}.",
            show_default="as text, or after ####",
        ),
    ] = None
    per_level: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Problems to draw from each level, by the dataset's seed.",
            show_default="all",
        ),
    ] = None
    dataset_seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of generated problems, and of what --per-level draws.",
            show_default="that of --seed",
        ),
    ] = None
    start: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="First problem to solve, counted from 0.",
            show_default="the dataset's first",
        ),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option(help="Problems to solve.", show_default="all; demo: 100"),
    ] = None
    seed: SeedOption = 0
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=completed("strategies_or_all"),
            help=f"{_NAMES}; FILE.py:NAME; or {ALL}. Several, and all: one after the other, "
            "compared side by side (of a file: a Strategy or a SearchConfig).",
            show_default=STRATEGY,
        ),
    ] = None
    schedule: Annotated[
        ScheduleName,
        typer.Option(
            metavar="NAME",
            help=f"In which order work is sent: {', '.join(get_args(ScheduleName))}.",
        ),
    ] = "decoupled"
    speculation: SpeculationOption = "auto"
    in_flight: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Problems that run at a time at most.",
            show_default="as many as keep the generator busy",
        ),
    ] = None
    n: Annotated[
        str | None,
        typer.Option(
            "--n",
            "-n",
            metavar="N,...",
            help="Completions per problem. Several, such as 1,4,16: a sweep, as of --set.",
            show_default="16; greedy: 1; auto: at most 256",
        ),
    ] = None
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE,...",
            help="Another parameter of the strategy, such as temperature=0.7 or beam_width=2. With "
            "several strategies, it goes to each one that has this parameter. Several values, such "
            "as temperature=0.4,0.8: a sweep, every combination a run, compared side by side. A "
            "comma in quotes, brackets or braces does not separate, nor one in answer_regex or "
            "answer_schema.",
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
            help="Solve every N-th of the problems, from the i-th on: one of N runs to be merged "
            "by tts runs merge.",
            show_default="all",
        ),
    ] = None
    ray: Annotated[
        bool,
        typer.Option(
            "--ray",
            help="Solve shards of the run by processes on a Ray cluster (RAY_ADDRESS, or this "
            "machine), one for each --endpoint, and merge them.",
        ),
    ] = False
    out: OutOption = None
    resume: Annotated[
        Path | None,
        typer.Option(
            callback=usable,
            autocompletion=completed("runs"),
            metavar="DIR",
            help="Continue the run, comparison or sweep there.",
        ),
    ] = None
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="With --resume: cut the log off where damage begins, keeping a copy, and compute "
            "again what followed.",
        ),
    ] = False
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score solutions that exist already, say which are best, and measure the verifier on labels.

    Only the verifier's engine is started. Where steps or answers have labels the scores are
    measured against them (docs/guides/know-your-verifier.md); candidates are ranked
    (docs/start/best-of-candidates.md).
    """

    context: typer.Context
    deployment: DeploymentArgument
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            callback=usable,
            help="Chains to score: a JSONL, JSON, CSV or Parquet file (ProcessBench, PRM800K and "
            "Math-Shepherd as published; problem, steps, labels; problem, candidates), or the "
            "folder of a finished run.",
            show_default=False,
        ),
    ] = None
    dataset: Annotated[
        str | None,
        typer.Option(
            autocompletion=completed("datasets"),
            help="In place of FILE: sample answers to the problems of a dataset first, as for tts "
            "bench, and score every step of them.",
        ),
    ] = None
    limit: Annotated[int, typer.Option(min=1, help="With --dataset: problems to sample.")] = 200
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="With --dataset: answers each.")] = 8
    seed: Annotated[int, typer.Option(help="With --dataset: seed of the samples.")] = 0
    verifier: VerifierOption = None
    endpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="HOST:PORT",
            help="A server of the deployment to use; give it several times for several servers.",
            show_default="those of the deployment, or of this machine",
        ),
    ] = None
    server: ServerOption = None
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Set verifier.calibration in the deployment file: how well scores tell right from "
            "wrong, and what probability a score stands for where a map holds on other problems.",
        ),
    ] = False
    out: Annotated[
        Path | None,
        typer.Option(
            callback=usable,
            help="Folder of the scores; the same command with the same folder goes on where it was "
            "interrupted.",
            show_default="a new one under runs/",
        ),
    ] = None
    as_json: JsonOption = False
