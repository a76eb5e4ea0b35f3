"""A run's requests with their token ids, rebuilt from its log as the run itself built them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tts.base.errors import RunError
from tts.build.spec import Role
from tts.build.tokenizer import Ids
from tts.prompting import Context, Models
from tts.search import NodePath, Stop, Thought

from .events import (
    AnyEvent,
    Cancelled,
    Prefetched,
    ProblemSolved,
    ProblemStarted,
    StepGenerated,
    StepScored,
    problem_of,
    thoughts_of,
)
from .paged_cache import TimedRequest
from .state import end_to_end

_NONE = np.empty(0, np.int32)
_KEPT = 64
"""Solved problems whose ids are kept for their last requests, which end after them."""


class RebuiltRequest(NamedTuple):
    """A request that an engine was sent."""

    engine: Role
    event: StepGenerated | Prefetched | Cancelled | StepScored
    ids: TimedRequest
    """Its ids; times are those of `end_to_end`. What a cancelled one generated is not known."""
    context: Context
    """What its problem's requests were made from, as far as the log was read."""


def logged_requests(events: Iterable[AnyEvent], models: Models) -> Iterator[RebuiltRequest]:
    """The requests that the engines were sent, in the order in which they ended.

    Requests to a verifier that takes text, such as a program's own reward, are not among them:
    `models` must be loaded for such a one. Raises RunError if the tokenizers are not those of the
    run.
    """
    contexts: dict[str, Context] = {}
    solved: deque[str] = deque()
    for began, event in end_to_end(events):
        match event:
            case ProblemStarted() if event.problem not in contexts:
                contexts[event.problem] = Context.of(models, problem_of(event))
            case ProblemSolved():
                solved.append(event.problem)
                if len(solved) > _KEPT:
                    del contexts[solved.popleft()]
            case StepGenerated() | Prefetched() | Cancelled() | StepScored():
                context = contexts.get(event.problem)
                if context and (request := _request(event, context)):
                    engine, prompt, generated = request
                    if (count := len(prompt)) != event.prompt_tokens:
                        where = f"has {count} tokens and had {event.prompt_tokens}"
                        raise other_tokenizer(event, engine, models, where)
                    start, end = began + event.sent, began + event.done
                    ids = TimedRequest(start, end, prompt, generated)
                    yield RebuiltRequest(engine, event, ids, context)
            case _:
                pass


def _request(
    event: StepGenerated | Prefetched | Cancelled | StepScored, context: Context
) -> tuple[Role, Ids, Ids] | None:
    """Engine, prompt and generated ids; None if no request was sent, or its ids are not known."""
    node = event.node
    match event:
        case StepGenerated():
            _fill(context, node[:-1])
            prompt = context.generator_ids(node[:-1])
            thoughts = thoughts_of(event)
            for thought in thoughts:
                context.add(node, thought)
                node = (*node, 0)
            ids = [token for thought in thoughts for token in thought.token_ids]
            return "generator", prompt, np.asarray(ids, np.int32)
        case Prefetched(engine="generator") | Cancelled(work="prefetch"):
            return "generator", context.generator_ids(()), _NONE
        case Cancelled(work="expand"):
            if node[:-1] not in context:
                return None
            return "generator", context.generator_ids(node[:-1]), _NONE
        case StepScored(cached=False) | Cancelled(work="score"):
            if context.models.takes_text:
                return None
            _fill(context, node)
            if len(context.verifier_ids(node)) != event.prompt_tokens and len(node) > 1:
                context.give_own_turn(node)  # the log does not say which searches ask for that
            return "verifier", context.verifier_ids(node), _NONE
        case _:
            return None


def _fill(context: Context, node: NodePath) -> None:
    """Add a node that no request wrote: its prompt had filled the generator's context."""
    if node not in context:
        _fill(context, node[:-1])
        context.add(node, Thought((), "", Stop.LENGTH))


def other_tokenizer(
    event: StepGenerated | Prefetched | Cancelled | StepScored,
    engine: Role,
    models: Models,
    where: str,
) -> RunError:
    """What says that a run's ids mean something else here; `where`: what shows it."""
    checkpoint = getattr(models.deployment, engine).checkpoint
    node = ".".join(map(str, event.node))
    return RunError(
        f"The run's requests cannot be rebuilt: with the tokenizer of {checkpoint} the {engine}'s "
        f"prompt for node {node} of problem {event.problem} {where}.",
        hint="Bring the checkpoint and the deployment back as they were when the run was made. The "
        "requests to a program's own reward, which reads texts, cannot be rebuilt.",
    )
