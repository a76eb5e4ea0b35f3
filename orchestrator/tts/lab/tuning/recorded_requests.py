"""The requests of a recorded run, and each engine as something that is put under load with them.

A measurement should find in the prefix cache what a search finds there, and no more. A search's
generator has every prompt in its cache, for it wrote the prompt itself. Its verifier has the
parent's dialogue and computes the new step. So before each measurement, outside its time, the
generator is sent every prompt and the verifier every parent's dialogue. And in each measurement the
dialogues begin with a few other tokens (a salt); else the verifier would find all of them cached
from the measurement before.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, cycle, islice
from typing import Any, TypeVar

import numpy as np

from tts.build.spec import Deployment, Role
from tts.build.tokenizer import Ids
from tts.driver.sharing import common_length
from tts.endpoints.base import GenerateCall, Generator, ScoreCall, Verifier
from tts.prompting import Models
from tts.runs.config import RunConfig
from tts.runs.events import AnyEvent, StepGenerated, StepScored
from tts.runs.replay import logged_requests
from tts.search import NodePath, Stop, node_seed

SALT_TOKENS = 4
BEYOND_FULL = 1.5
"""The largest load is at least this many times the load of a full batch."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scoring:
    """A dialogue for the verifier."""

    ids: Ids
    cached: int
    """How many of its first tokens the verifier has computed already, for the parent; 0 of one that
    writes."""
    critique_tokens: int
    """Tokens that the verifier wrote."""


@dataclass(frozen=True, slots=True)
class RecordedRequests:
    """What a run asked of both engines.

    Shuffled (always in the same way), so that any first part of them is a fair sample; siblings
    stay together, as they were sent.
    """

    generations: tuple[GenerateCall, ...]
    scorings: tuple[Scoring, ...]


def recorded_requests(
    models: Models, config: RunConfig, events: Iterable[AnyEvent]
) -> RecordedRequests:
    """The requests of a run with this configuration and these events of its log.

    A generation asks for as many tokens as it gave then, with the same prompt, seed and sampling.
    Raises RunError.
    """
    consecutive = config.seeds is not None
    generations: dict[tuple[str, NodePath], list[GenerateCall]] = defaultdict(list)
    scorings: dict[tuple[str, NodePath], list[Scoring]] = defaultdict(list)
    for _, event, ids, context in logged_requests(events, models):
        parent = event.node[:-1]
        if isinstance(event, StepGenerated) and event.tokens:
            call = GenerateCall(
                ids.prompt,
                event.tokens,
                node_seed(config.seed, event.problem, event.node, consecutive=consecutive),
                config.parameters["temperature"],
                config.parameters["top_p"],
                [thought.stop for thought in event.thoughts] == [Stop.STEP],
            )
            generations[event.problem, parent].append(call)
        elif isinstance(event, StepScored):
            cached = 0
            if not models.critic:
                before = (
                    context.verifier_ids(parent)
                    if parent
                    else models.verifier.first(context.problem.full_question, "")
                )
                cached = common_length(before, ids.prompt)
            scoring = Scoring(ids.prompt, cached, event.tokens)
            scorings[event.problem, parent].append(scoring)
    return RecordedRequests(_shuffled(generations), _shuffled(scorings))


def _shuffled(by_parent: Mapping[Any, Sequence[T]]) -> tuple[T, ...]:
    order = list(by_parent.values())
    random.Random(0).shuffle(order)
    return tuple(request for siblings in order for request in siblings)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A request of a measurement."""

    cost: int
    """What it adds to the load in flight, in the engine's unit (`load_unit`)."""
    send: Callable[[], Awaitable[int]]
    """Sends it; answers how many tokens the engine did: generated, or of the scored prompt."""


def load_unit(role: Role, spec: Deployment) -> str:
    """What an engine's load is counted in: requests, critiques, or tokens of prompts."""
    if role == "generator":
        return "requests"
    return "critiques" if spec.critiques else "tokens"


@dataclass(frozen=True)
class EngineUnderLoad:
    """An engine, the loads to measure it at, and requests without end.

    Loads are what is in flight, in the engine's unit (`load_unit`).
    """

    role: Role
    loads: tuple[int, ...]
    mean_cost: float
    """The mean cost of a request."""
    full_batch: float
    """The load that fills the engine's batch."""
    requests: Callable[[int], Iterator[LoadRequest]]
    """The requests of the measurement with this number, over and over."""
    warm_up: Callable[[int, int], list[LoadRequest]]
    """What fills the prefix cache for so many first requests (second argument) of a measurement."""


def loadable_generator(
    generator: Generator, recorded: RecordedRequests, spec: Deployment
) -> EngineUnderLoad:
    """The generator, loaded with 1, 2, 4, ... requests until well beyond its batch."""
    calls = recorded.generations

    def request(call: GenerateCall) -> LoadRequest:
        async def send() -> int:
            return len(await generator.generate(call))

        return LoadRequest(1, send)

    def requests(_: int) -> Iterator[LoadRequest]:
        return map(request, cycle(calls))

    def warm_up(_: int, count: int) -> list[LoadRequest]:
        prompts = {call.input_ids.tobytes(): call for call in calls[:count]}.values()
        return [request(replace(call, max_new_tokens=1, stop_at_step=False)) for call in prompts]

    full_batch = spec.compiled_pair()[0].max_batch_size
    loads = doubling(1, BEYOND_FULL * full_batch)
    return EngineUnderLoad("generator", loads, 1.0, full_batch, requests, warm_up)


def loadable_verifier(
    verifier: Verifier, recorded: RecordedRequests, spec: Deployment
) -> EngineUnderLoad:
    """The verifier, loaded with the tokens of its longest request, twice that, ... likewise."""
    if spec.critiques:
        return _loadable_writer(verifier, recorded, spec)
    scorings = recorded.scorings
    lengths = [len(scoring.ids) for scoring in scorings]
    mean = sum(lengths) / len(lengths)
    alphabet = np.unique(np.concatenate([scoring.ids for scoring in scorings]))

    def request(ids: Ids, salt: int) -> LoadRequest:
        async def send() -> int:
            await verifier.score(ScoreCall(salted(ids, salt, alphabet)))
            return len(ids)

        return LoadRequest(len(ids), send)

    def with_salts(measurement: int) -> Iterator[tuple[Scoring, int]]:
        # a measurement goes through all requests less often than 1000 times
        return ((scoring, salt) for salt in count(measurement * 1000) for scoring in scorings)

    def requests(measurement: int) -> Iterator[LoadRequest]:
        return (request(scoring.ids, salt) for scoring, salt in with_salts(measurement))

    def warm_up(measurement: int, first: int) -> list[LoadRequest]:
        parents = {
            (ids.tobytes(), salt): (ids, salt)
            for scoring, salt in islice(with_salts(measurement), first)
            if len(ids := scoring.ids[: scoring.cached]) > SALT_TOKENS
        }
        return [request(*parent) for parent in parents.values()]

    _, engine = spec.compiled_pair()
    full_batch = min(engine.max_batch_size * mean, engine.kv_cache.tokens)
    loads = doubling(1 << (max(lengths) - 1).bit_length(), BEYOND_FULL * full_batch)
    return EngineUnderLoad("verifier", loads, mean, full_batch, requests, warm_up)


def _loadable_writer(
    verifier: Verifier, recorded: RecordedRequests, spec: Deployment
) -> EngineUnderLoad:
    """A verifier that writes, loaded with the critiques of one score, of two, ... likewise.

    As the generator, it has every prompt in its cache after the discarded round. A full batch is
    what its KV cache takes at most: prompts, and critiques of the longest length.
    """
    scorings, critiques = recorded.scorings, spec.critiques

    def request(ids: Ids) -> LoadRequest:
        async def send() -> int:
            return (await verifier.score(ScoreCall(ids))).tokens

        return LoadRequest(critiques, send)

    def requests(_: int) -> Iterator[LoadRequest]:
        return (request(scoring.ids) for scoring in cycle(scorings))

    _, engine = spec.compiled_pair()
    prompt = sum(len(scoring.ids) for scoring in scorings) / len(scorings)
    fitting = engine.kv_cache.tokens / (prompt + engine.critique.max_tokens)
    full_batch = max(critiques, min(engine.max_batch_size, fitting))
    loads = doubling(critiques, BEYOND_FULL * full_batch)
    return EngineUnderLoad(
        "verifier", loads, critiques, full_batch, requests, lambda number, count: []
    )


def doubling(first: int, at_least: float) -> tuple[int, ...]:
    """`first`, twice that, ... up to the first that is at least `at_least`."""
    loads = [first]
    while loads[-1] < at_least:
        loads.append(2 * loads[-1])
    return tuple(loads)


def salted(ids: Ids, salt: int, alphabet: Ids) -> Ids:
    """Ids of which the first SALT_TOKENS spell `salt` in tokens of `alphabet`."""
    new = ids.copy()
    for place in range(min(SALT_TOKENS, len(ids))):
        salt, digit = divmod(salt, len(alphabet))
        new[place] = alphabet[digit]
    return new
