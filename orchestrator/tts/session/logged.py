"""Results from a run's log, for a run that is continued."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tts.problem import Problem
from tts.runs.events import AnyEvent, Generated
from tts.runs.run import solved_problems
from tts.search import NodePath
from tts.strategies.strategy import Vote

from .result import Result
from .usage import Meter


def logged_results(
    events: Iterable[AnyEvent], problems: Iterable[Problem], vote: Vote, meter: Meter
) -> Iterator[Result]:
    """The results of solved problems, in the order in which they were solved, without trees.

    What is known of a problem is dropped as soon as it has its result; `meter` keeps what the
    unfinished ones have taken.
    """
    asked = {problem.id: problem for problem in problems}
    tokens: defaultdict[str, dict[NodePath, int]] = defaultdict(dict)

    def counted() -> Iterator[AnyEvent]:
        for event in events:
            meter.add(event)
            if isinstance(event, Generated):
                node = event.node
                for thought in event.thoughts:
                    tokens[event.problem][node] = len(thought.ids)
                    node = (*node, 0)
            yield event

    for record in solved_problems(counted(), vote, {}):
        of_node = tokens.pop(record.id, {})
        used = {
            done.node[:depth] for done in record.completions for depth in range(len(done.node) + 1)
        }
        usage = meter.take(record.id, 0.0, sum(of_node.get(node, 0) for node in used))
        yield Result(
            asked[record.id],
            record.answer,
            record.correct,
            vote,
            record.answers,
            record.completions,
            replace(usage, seconds=record.seconds or 0.0),
            record.tree_digest,
            None,
            record.limit,
        )
