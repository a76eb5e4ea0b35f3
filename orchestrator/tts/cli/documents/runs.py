"""What `tts solve`, `bench`, `report` and `runs` print with `--json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tts.lab.study.advice import StudyAdvice
from tts.runs.compare import Row
from tts.runs.pairs import Pair, Setting
from tts.runs.records import CompletionRecord
from tts.search import Limit
from tts.session.result import Result, Usage


@dataclass(frozen=True, kw_only=True)
class SolveDocument:
    """A question and its answer."""

    run: str
    """The run's folder."""
    question: str
    answer: str | None
    """The answer by the strategy's own rule; null if no completion has an answer."""
    vote: str
    """The rule by which `answer` is chosen."""
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
class RunsDocument:
    """Runs side by side."""

    rows: list[Row]
    """A row for each strategy: several may share a run under different votes."""
    unfinished: dict[str, list[str]]
    """The strategies whose runs have not finished, by the folder of their comparison."""


@dataclass(frozen=True, kw_only=True)
class BenchDocument(RunsDocument):
    """What a benchmark came to."""

    folder: str
    """The folder of the run, or of the comparison."""


@dataclass(frozen=True, kw_only=True)
class ReportDocument(RunsDocument):
    """Runs, or a study, and the page that was written."""

    settings: list[Setting]
    """The settings in which runs of several folders differ."""
    pairs: list[Pair]
    """Each run of several folders against the first."""
    advice: list[StudyAdvice]
    """What a study advises; empty for runs."""
    page: str | None
    """null where none can be made of these runs."""
    figures: list[str]
    """The files that --format has written."""
