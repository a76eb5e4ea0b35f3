"""A search's tree as the report's viewer draws it, from its steps and its result."""

from __future__ import annotations

from tts.reports.page.trees import ProblemTree, ThoughtRecord
from tts.runs.events import LoggedAnswer, LoggedCompletion, LoggedThought
from tts.search import Fate, NodePath
from tts.session import Result

from ..running_search import RunningSearch


def tree_of(search: RunningSearch, result: Result) -> ProblemTree:
    """The tree of a search that has ended with `result`. Times are the clock's of the search."""
    answers = list(dict.fromkeys(done.answer for done in result.completions if done.answer))
    tree = ProblemTree(
        result.problem.id,
        question=result.problem.full_question,
        level=result.problem.level,
        reference=result.problem.answer,
        answer=result.answer,
        correct=result.correct,
        began=search.began,
        ended=search.ended,
        limit=result.limit,
        digest=result.tree_digest,
        tokens=result.usage.generated_tokens,
        completions=tuple(
            LoggedCompletion(
                done.node, done.score, answers.index(done.answer) if done.answer else -1
            )
            for done in result.completions
        ),
        groups=tuple(LoggedAnswer(answer, None) for answer in answers),
    )
    tree.thoughts = _thoughts(search, result)
    return tree


def _thoughts(search: RunningSearch, result: Result) -> list[ThoughtRecord]:
    written: dict[NodePath, float] = {}
    scored: dict[NodePath, float] = {}
    expanded: dict[NodePath, float] = {}
    for at, step in search.timed_steps:
        times = written if step.score is None else scored
        times.setdefault(step.node, at)
        expanded.setdefault(step.node[:-1], at)
    thoughts = []
    for node in result.tree or ():
        if node.thought is None:
            continue
        done = written.get(node.path, search.began)
        thoughts.append(
            ThoughtRecord(
                node.path,
                node.path,
                LoggedThought(node.thought.token_ids, node.thought.text, node.thought.stop),
                sent=None,
                done=done,
                speculative=False,
                used=done,
                score=node.score,
                scored=None if node.score is None else scored.get(node.path, done),
                fate=node.fate,
                decided=expanded.get(node.path) if node.fate is Fate.EXPANDED else search.ended,
            )
        )
    return sorted(thoughts, key=lambda thought: (thought.done, thought.path))
