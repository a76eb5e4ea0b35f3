"""The requests of a recorded run, rebuilt from its log. Pure: no engine, no clock."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tts.build.tokenizer import Ids
from tts.endpoints.base import GenerateCall
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.runs.events import AnyEvent, Generated, Scored, thoughts_of
from tts.search import NodePath, Stop, node_seed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scoring:
    """A dialogue for the verifier."""

    ids: Ids
    cached: int
    """How many of its first tokens the verifier has computed already, for the parent."""


@dataclass(frozen=True, slots=True)
class RecordedRequests:
    """What a run asked of both engines.

    Shuffled (always in the same way), so that any first part of them is a fair sample; siblings
    stay together, as they were sent.
    """

    generations: tuple[GenerateCall, ...]
    scorings: tuple[Scoring, ...]


def recorded_requests(
    models: Models,
    problems: Iterable[Problem],
    config: Mapping[str, Any],
    events: Iterable[AnyEvent],
) -> RecordedRequests:
    """The requests of a run with this configuration (run.json) and these events of its log.

    A generation asks for as many tokens as it gave then, with the same prompt, seed and sampling.
    """
    contexts = {problem.id: Context.of(models, problem) for problem in problems}
    known: dict[str, set[NodePath]] = {name: {()} for name in contexts}
    parameters = config["parameters"]
    generations: dict[tuple[str, NodePath], list[GenerateCall]] = defaultdict(list)
    scorings: dict[tuple[str, NodePath], list[Scoring]] = defaultdict(list)
    for event in events:
        if not isinstance(event, Generated | Scored):
            continue
        name, node = event.problem, event.node
        context, parent = contexts[name], node[:-1]
        if isinstance(event, Generated):
            if parent not in known[name]:
                continue
            thoughts = thoughts_of(event)
            if event.tokens:
                call = GenerateCall(
                    context.generator_ids(parent),
                    event.tokens,
                    node_seed(config["seed"], name, node),
                    parameters["temperature"],
                    parameters["top_p"],
                    [thought.stop for thought in thoughts] == [Stop.STEP],
                )
                generations[name, parent].append(call)
            for thought in thoughts:
                if node not in known[name]:
                    context.add(node, thought)
                    known[name].add(node)
                node = (*node, 0)
        elif not event.cached and node in known[name]:
            ids = context.verifier_ids(node)
            before = (
                context.verifier_ids(parent)
                if parent
                else models.verifier.first(context.problem.full_question, "")
            )
            scorings[name, parent].append(Scoring(ids, common_prefix(before, ids)))
    return RecordedRequests(_shuffled(generations), _shuffled(scorings))


def common_prefix(first: Ids, second: Ids) -> int:
    """How many tokens both begin with."""
    length = min(len(first), len(second))
    differ = np.flatnonzero(first[:length] != second[:length])
    return int(differ[0]) if len(differ) else length


def _shuffled(by_parent: Mapping[Any, Sequence[T]]) -> tuple[T, ...]:
    order = list(by_parent.values())
    random.Random(0).shuffle(order)
    return tuple(request for siblings in order for request in siblings)
