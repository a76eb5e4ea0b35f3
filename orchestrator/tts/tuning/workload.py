"""Both engines as something that can be loaded: recorded requests, and what warms the cache.

A measurement should find in the prefix cache what a search finds there, and no more. A search's
generator has every prompt in its cache, for it wrote it. Its verifier has the parent's dialogue
and computes the new step. So before each measurement the generator is sent every prompt and the
verifier every parent's dialogue, untimed; and the verifier's dialogues get a first few tokens that
no earlier measurement had, else it would find all of them computed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from tts.build.spec import Deployment, Role
from tts.build.tokenizer import Ids
from tts.endpoints.base import GenerateCall, Generator, ScoreCall, Verifier

from .requests import Recorded, Scoring

SALT_TOKENS = 4
BEYOND = 1.5  # times what an engine holds at once is the largest load at least


@dataclass(frozen=True, slots=True)
class Job:
    """A request: what it takes of the budget, and how to send it; answers how many tokens it did.

    These are generated tokens, or those of the prompt that was scored.
    """

    cost: int
    send: Callable[[], Awaitable[int]]


@dataclass(frozen=True)
class Loadable:
    """An engine with the loads to try, and requests without end. Loads in requests or tokens."""

    role: Role
    loads: tuple[int, ...]
    mean_cost: float
    """Of a request."""
    holds: float
    """The load that fills its batch."""
    jobs: Callable[[int], Iterator[Job]]
    """The requests, over and over; a number says which measurement they are for."""
    warm_up: Callable[[int, int], list[Job]]
    """What to send before the first so many of them in a measurement."""


def loadable_generator(generator: Generator, recorded: Recorded, spec: Deployment) -> Loadable:
    """The generator, loaded with 1, 2, 4, ... requests until well beyond its batch."""
    calls = recorded.generations

    def job(call: GenerateCall) -> Job:
        async def send() -> int:
            return len(await generator.generate(call))

        return Job(1, send)

    def jobs(_: int) -> Iterator[Job]:
        while True:
            yield from map(job, calls)

    def warm_up(_: int, count: int) -> list[Job]:
        prompts = {call.input_ids.tobytes(): call for call in calls[:count]}
        return [
            job(replace(call, max_new_tokens=1, stop_at_step=False)) for call in prompts.values()
        ]

    holds = spec.generator.max_batch_size
    return Loadable("generator", doubling(1, BEYOND * holds), 1.0, holds, jobs, warm_up)


def loadable_verifier(verifier: Verifier, recorded: Recorded, spec: Deployment) -> Loadable:
    """The verifier, loaded with its longest request's tokens, twice that, ... likewise."""
    scorings = recorded.scorings
    lengths = [len(scoring.ids) for scoring in scorings]
    mean = sum(lengths) / len(lengths)
    alphabet = np.unique(np.concatenate([scoring.ids for scoring in scorings]))

    def job(ids: Ids, salt: int) -> Job:
        async def send() -> int:
            await verifier.score(ScoreCall(salted(ids, salt, alphabet)))
            return len(ids)

        return Job(len(ids), send)

    def rounds(measurement: int) -> Iterator[tuple[Scoring, int]]:
        salt = measurement * 1000  # a measurement goes through all requests less often than that
        while True:
            yield from ((scoring, salt) for scoring in scorings)
            salt += 1

    def jobs(measurement: int) -> Iterator[Job]:
        return (job(scoring.ids, salt) for scoring, salt in rounds(measurement))

    def warm_up(measurement: int, count: int) -> list[Job]:
        parents = {
            (scoring.ids[: scoring.known].tobytes(), salt): scoring
            for scoring, salt in islice(rounds(measurement), count)
            if scoring.known > SALT_TOKENS
        }
        return [job(scoring.ids[: scoring.known], salt) for (_, salt), scoring in parents.items()]

    engine = spec.verifier
    holds = min(engine.max_batch_size * mean, engine.kv_cache.tokens)
    loads = doubling(1 << (max(lengths) - 1).bit_length(), BEYOND * holds)
    return Loadable("verifier", loads, mean, holds, jobs, warm_up)


def doubling(first: int, least_last: float) -> tuple[int, ...]:
    """`first`, twice that, ... up to the first that is not below `least_last`."""
    loads = [first]
    while loads[-1] < least_last:
        loads.append(2 * loads[-1])
    return tuple(loads)


def salted(ids: Ids, salt: int, alphabet: Ids) -> Ids:
    """The same ids but for the first few, which spell `salt` in tokens of `alphabet`."""
    new = ids.copy()
    for place in range(min(SALT_TOKENS, len(ids))):
        salt, digit = divmod(salt, len(alphabet))
        new[place] = alphabet[digit]
    return new
