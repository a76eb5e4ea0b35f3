"""A run's folder for programs: its problems and requests as records or data frames.

run = Run.load("runs/mine")
for problem in run.problems:
    print(problem.id, problem.answer, problem.correct, problem.completions[0].steps)
problems, requests = run.to_frames()
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from tts.base.errors import RunError, TtsError
from tts.strategies.strategy import Vote

from .config import RunConfig, read_run_config
from .events import ProblemSolved
from .folder import has_finished
from .groups import is_group, read_group
from .log import read_events
from .measures import Measures
from .named_measures import ALL
from .records import NOT_WRITTEN, CompletionRecord, EngineRequest, ProblemRecord
from .requests import requests_of
from .state import ProblemState, solved_problems
from .summary import Summary, read_summary

FrameLibrary = Literal["pandas", "polars"]


@dataclass(frozen=True)
class Run:
    """A run, finished or not. The log is read when something of it is first asked for."""

    folder: Path
    config: RunConfig
    """The configuration: run.json, its keys as attributes."""
    summary: Summary | None
    """The results: summary.json, its keys as attributes; None if the run has not finished."""

    @classmethod
    def load(cls, folder: Path | str) -> Run:
        """The run in `folder`; raises RunError if it holds none, or its parts contradict."""
        folder = Path(folder).expanduser()
        if is_group(folder):
            names = ", ".join(member.folder for member in read_group(folder)[1])
            raise RunError(
                f"{folder} holds several runs.", hint=f"Name the folder of one of them: {names}."
            )
        config = read_run_config(folder)
        return cls(folder, config, read_summary(folder) if has_finished(folder) else None)

    @cached_property
    def problems(self) -> tuple[ProblemRecord, ...]:
        """The solved problems, in the order in which they were solved; raises RunError."""
        return tuple(
            problem_record(problem, self.config.vote)
            for problem in solved_problems(read_events(self.folder))
        )

    @cached_property
    def requests(self) -> tuple[EngineRequest, ...]:
        """All requests to both engines, in the order in which they ended; raises RunError."""
        return tuple(requests_of(read_events(self.folder)))

    @cached_property
    def totals(self) -> Measures:
        """What its log adds up to, as far as it goes; raises RunError."""
        return Measures.of(read_events(self.folder), self.config)

    @property
    def accuracy(self) -> float | None:
        """Share of the solved problems with a reference that are right; None without any."""
        return self.totals.accuracy(self.config.vote)

    @property
    def measures(self) -> dict[str, float | int | None]:
        """Its measures by name, as docs/reference/measures.md defines them; raises RunError.

        None is what the log does not say.
        """
        return {measure.name: measure.value(self.totals) for measure in ALL}

    def to_frames(self, library: FrameLibrary | None = None) -> tuple[Any, Any]:
        """Problems and requests as data frames of `library`, or of whichever is installed.

        A row for each record, a column for each field; nodes are text such as `0.2.1`, levels text
        too. The completions are replaced by their number. Raises TtsError if the library is not
        installed.
        """
        frame = _frame_type(library)
        return frame(_problem_columns(self.problems)), frame(_request_columns(self.requests))


def problem_record(problem: ProblemState, vote: str) -> ProblemRecord:
    """The record of a solved problem."""
    solved, seconds = problem.solution, problem.seconds
    if solved is None:
        raise ValueError(f"problem {problem.id} is not solved")
    return ProblemRecord(
        id=problem.id,
        question=problem.start.question if problem.start else "",
        level=solved.level,
        reference=solved.reference,
        answer=problem.answer(vote),
        answers=solved.answers,
        correct=problem.correct(vote),
        completions=tuple(_completions(problem, solved)),
        tree_digest=solved.tree_digest,
        tokens=problem.work.generated_tokens,
        seconds=None if seconds is None else round(seconds, 6),
        limit=solved.limit,
    )


def _completions(problem: ProblemState, solved: ProblemSolved) -> Iterator[CompletionRecord]:
    thoughts = {node: thought for node, thought, _, _ in problem.thoughts()}
    scores = {event.node: event.score for _, event in problem.scored}
    for end, path in zip(solved.completions, problem.completed_paths(), strict=True):
        chain = [(thoughts.get(node, NOT_WRITTEN), scores.get(node)) for node in path]
        answer = solved.groups[end.group].answer if end.group >= 0 else None
        yield CompletionRecord.of(end, chain, answer)


def _problem_columns(problems: Sequence[ProblemRecord]) -> dict[str, list[Any]]:
    return {
        "id": [p.id for p in problems],
        "question": [p.question for p in problems],
        "level": [None if p.level is None else str(p.level) for p in problems],
        "reference": [p.reference for p in problems],
        "answer": [p.answer for p in problems],
        **{f"answer_{vote}": [p.answers.get(vote) for p in problems] for vote in get_args(Vote)},
        "correct": [p.correct for p in problems],
        "completions": [len(p.completions) for p in problems],
        "tokens": [p.tokens for p in problems],
        "seconds": [p.seconds for p in problems],
        "limit": [p.limit for p in problems],
        "tree_digest": [p.tree_digest for p in problems],
    }


def _request_columns(requests: Sequence[EngineRequest]) -> dict[str, list[Any]]:
    same = ("engine", "kind", "problem", "sent", "done", "prompt_tokens", "tokens")
    return {
        **{name: [getattr(request, name) for request in requests] for name in same},
        "node": [".".join(map(str, request.node)) for request in requests],
        "generator_in_flight": [request.in_flight[0] for request in requests],
        "verifier_in_flight": [request.in_flight[1] for request in requests],
        "cancelled": [request.cancelled for request in requests],
    }


def _frame_type(library: FrameLibrary | None) -> Callable[[dict[str, list[Any]]], Any]:
    for name in get_args(FrameLibrary) if library is None else (library,):
        with suppress(ImportError):
            frame: Callable[[dict[str, list[Any]]], Any] = importlib.import_module(name).DataFrame
            return frame
    raise TtsError(
        f"There is no {library or 'pandas or polars'} here to make data frames with.",
        hint=f"Install it: pip install {library or 'pandas'}",
    )
