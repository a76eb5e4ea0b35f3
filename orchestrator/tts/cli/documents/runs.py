"""What `tts solve`, `bench`, `report` and `runs` print with `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tts.lab.study.advice import Advice
from tts.runs.compare import PairedRun, Row, Setting, Trees, read_rows
from tts.runs.config import read_run_config
from tts.runs.groups import is_group
from tts.runs.measured_run import MeasuredRun
from tts.runs.records import CompletionRecord
from tts.runs.summary import Summary, read_summary
from tts.search import Limit
from tts.session.result import Result, Usage


@dataclass(frozen=True, kw_only=True)
class SolveDocument:
    """A question and its answer."""

    run: str
    """The run's folder."""
    question: str
    answer: str | None
    """By the strategy's own rule; null if no completion has an answer."""
    vote: str
    """That rule."""
    answers: dict[str, str | None]
    """The answer by each rule: best, weighted, majority."""
    limit: Limit | None
    """The limit that cut the search short; null if it finished."""
    completions: tuple[CompletionRecord, ...]
    """Best first."""
    usage: Usage
    tree_digest: str
    """Equal for equal trees."""

    @classmethod
    def of(cls, result: Result, folder: Path) -> SolveDocument:
        """The document of a result and the run that it came from."""
        return cls(
            run=str(folder),
            question=result.problem.question,
            answer=result.answer,
            vote=result.vote,
            answers=result.answers,
            limit=result.limit,
            completions=result.completions,
            usage=result.usage,
            tree_digest=result.tree_digest,
        )


@dataclass(frozen=True, kw_only=True)
class ReportedRun:
    """A finished run."""

    folder: str
    command: list[str]
    """The command line that asked for it, word by word; empty where it is not known."""
    summary: Summary


@dataclass(frozen=True, kw_only=True)
class RunsDocument:
    """Finished runs, side by side."""

    runs: list[ReportedRun]
    """A comparison's folder stands for its finished runs."""
    rows: list[Row]
    """A row for each strategy: several may share a run under different votes."""
    unfinished: dict[str, list[str]]
    """By the folder of a comparison, the strategies whose runs have not finished."""


@dataclass(frozen=True, kw_only=True)
class BenchDocument(RunsDocument):
    """What a benchmark came to."""

    folder: str
    """The folder of the run, or of the comparison."""


@dataclass(frozen=True, kw_only=True)
class ReportDocument(RunsDocument):
    """Runs, or a study, and the page that was written."""

    advice: list[Advice]
    """What a study advises; empty for runs."""
    page: str | None
    """null where none can be made of these runs."""
    figures: list[str]
    """The files that --format has written."""


def runs_of(folders: Sequence[Path]) -> RunsDocument:
    """Finished runs, and those of comparisons; raises RunError."""
    rows: list[Row] = []
    unfinished = {}
    for folder in folders:
        found, left = read_rows(folder)
        rows += found
        if is_group(folder):
            unfinished[str(folder)] = left
    return RunsDocument(
        runs=[_reported(Path(folder)) for folder in dict.fromkeys(row.run for row in rows)],
        rows=rows,
        unfinished=unfinished,
    )


def _reported(folder: Path) -> ReportedRun:
    return ReportedRun(
        folder=str(folder), command=read_run_config(folder).command, summary=read_summary(folder)
    )


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One of the runs that are compared, finished or not."""

    folder: str
    name: str
    """As much of its path as tells it apart."""
    strategy: str
    schedule: str
    problems: int
    """Solved problems."""
    accuracy: float | None
    wall_s: float


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a problem took on average, on the problems of both runs."""

    name: Literal["generated_tokens", "verifier_tokens", "seconds"]
    baseline: float
    other: float
    difference: float
    """Other minus baseline."""
    difference_95: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A run against the first one, on the problems that both have solved."""

    baseline: str
    """Folder of the first run."""
    other: str
    """Folder of the run that is compared with it."""
    common: tuple[str, ...]
    """The ids of those problems."""
    judged: int
    """How many of them have a reference."""
    right: tuple[int, int]
    """How many of those are right in the baseline, and in the other run."""
    only_baseline: tuple[str, ...]
    """Problems that only the baseline has right."""
    only_other: tuple[str, ...]
    gain: float | None
    """Accuracy of the other run minus the baseline's; null without references."""
    gain_95: tuple[float, float] | None
    p_value: float
    """McNemar's exact test, of both runs being right equally often."""
    costs: list[Cost]
    trees: Trees | None
    """Their trees; null where the runs were not asked for the same ones."""


@dataclass(frozen=True, kw_only=True)
class CompareDocument:
    """Runs compared with the first of them, problem by problem."""

    runs: list[ComparedRun]
    settings: list[Setting]
    """The settings in which the runs differ."""
    pairs: list[Pair]

    @classmethod
    def of(
        cls,
        runs: Sequence[MeasuredRun],
        names: Sequence[str],
        settings: list[Setting],
        pairs: Sequence[PairedRun],
    ) -> CompareDocument:
        """The document of the results of `tts.runs.compare`."""
        return cls(
            runs=[
                ComparedRun(
                    folder=str(run.folder),
                    name=name,
                    strategy=run.config.strategy,
                    schedule=run.config.schedule,
                    problems=len(run.measures.problems),
                    accuracy=run.accuracy,
                    wall_s=run.measures.wall_s,
                )
                for run, name in zip(runs, names, strict=True)
            ],
            settings=settings,
            pairs=[_pair(pair) for pair in pairs],
        )


_COSTS: dict[str, Literal["generated_tokens", "verifier_tokens", "seconds"]] = {
    "generated tokens": "generated_tokens",
    "verifier tokens": "verifier_tokens",
    "seconds": "seconds",
}


def _pair(pair: PairedRun) -> Pair:
    return Pair(
        baseline=str(pair.baseline.folder),
        other=str(pair.other.folder),
        common=pair.common,
        judged=pair.judged,
        right=pair.right,
        only_baseline=pair.only_baseline,
        only_other=pair.only_other,
        gain=pair.gain,
        gain_95=pair.gain_95,
        p_value=pair.p_value,
        costs=[
            Cost(
                name=_COSTS[cost.name],
                baseline=cost.baseline,
                other=cost.other,
                difference=cost.difference.mean,
                difference_95=cost.difference.interval_95,
            )
            for cost in pair.costs
        ],
        trees=pair.trees,
    )
