"""Results from a run's log, for a run that is continued."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tts.analysis.records import CompletionRecord
from tts.problem import Problem
from tts.runlog.events import AnyEvent, Generated, LoggedCompletion, ProblemSolved, Scored
from tts.search import NodePath
from tts.strategies.strategy import Vote

from .result import Result
from .usage import Meter


@dataclass
class _Nodes:
    """What the log says of one problem's nodes."""

    texts: dict[NodePath, str] = field(default_factory=dict)
    tokens: dict[NodePath, int] = field(default_factory=dict)
    scores: dict[NodePath, float] = field(default_factory=dict)


def logged_results(
    events: Iterable[AnyEvent], problems: Iterable[Problem], vote: Vote, meter: Meter
) -> Iterator[Result]:
    """The results of solved problems, in the order in which they were solved, without trees.

    What is known of a problem is dropped as soon as it has its result; `meter` keeps what the
    unfinished ones have taken.
    """
    asked = {problem.id: problem for problem in problems}
    known: defaultdict[str, _Nodes] = defaultdict(_Nodes)
    for event in events:
        meter.add(event)
        match event:
            case Generated():
                nodes, path = known[event.problem], event.node
                for thought in event.thoughts:
                    nodes.texts[path], nodes.tokens[path] = thought.text, len(thought.ids)
                    path = (*path, 0)
            case Scored():
                known[event.problem].scores[event.node] = event.score
            case ProblemSolved():
                nodes = known.pop(event.problem, _Nodes())
                yield _result(event, asked[event.problem], vote, nodes, meter)


def _result(
    event: ProblemSolved, problem: Problem, vote: Vote, nodes: _Nodes, meter: Meter
) -> Result:
    used = {node for done in event.completions for node in _chain(done.node)}
    tokens = sum(nodes.tokens.get(node, 0) for node in used)
    return Result(
        problem,
        event.answers[vote],
        None if event.correct is None else event.correct.get(vote, False),
        vote,
        event.answers,
        tuple(_completion(done, event, nodes) for done in event.completions),
        meter.take(event.problem, event.t, tokens),
        event.tree_digest,
        None,
    )


def _completion(done: LoggedCompletion, event: ProblemSolved, nodes: _Nodes) -> CompletionRecord:
    chain = [
        (nodes.texts[node], nodes.scores.get(node))
        for node in _chain(done.node)
        if node in nodes.texts
    ]
    answer = event.groups[done.group].answer if event.groups and done.group >= 0 else None
    return CompletionRecord.of(done.node, chain, done.score, answer)


def _chain(node: NodePath) -> Iterator[NodePath]:
    return (node[:depth] for depth in range(1, len(node) + 1))
