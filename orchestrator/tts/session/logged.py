"""Results from a run's log, for a run that is continued."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tts.problem import Problem
from tts.runs.events import AnyEvent
from tts.runs.run import problem_record
from tts.runs.state import solved_problems
from tts.strategies.strategy import Vote

from .result import Result, Usage


def logged_results(
    events: Iterable[AnyEvent], problems: Iterable[Problem], vote: Vote
) -> Iterator[Result]:
    """The results of solved problems, in the order in which they were solved, without trees."""
    asked = {problem.id: problem for problem in problems}
    for problem in solved_problems(events):
        record, tokens = problem_record(problem, vote), problem.tokens_by_node()
        used = {node for path in problem.completed_paths() for node in path}
        completion_tokens = sum(tokens.get(node, 0) for node in used)
        yield Result(
            asked[record.id],
            record.answer,
            record.correct,
            vote,
            record.answers,
            record.completions,
            Usage.of(problem.work, completion_tokens, record.seconds or 0.0),
            record.tree_digest,
            None,
            record.limit,
        )
