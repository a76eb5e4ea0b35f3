"""Plain generation on simulated servers: so many clients, each with one request at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts.endpoints.routing import PolicyName
from tts.endpoints.routing.policies import THRESHOLD
from tts.engines.simulated import Request, Sharing
from tts.lab.simulation.fleet import ServerGroup, fleet_of, router_of
from tts.lab.simulation.virtual_time import run_virtual


@dataclass(frozen=True)
class Prompts:
    """Requests that have nothing in common. Lengths are drawn evenly from half to 3/2 of these."""

    count: int
    prompt_tokens: int = 512
    answer_tokens: int = 256
    seed: int = 0


@dataclass(frozen=True)
class Generation:
    """What came of it. All of it is simulated."""

    wall_s: float
    tokens: int
    """Generated."""
    latencies_s: tuple[float, ...]
    """Seconds that each request took, in increasing order."""

    @property
    def tokens_per_s(self) -> float:
        """Tokens generated per second for all clients together."""
        return self.tokens / self.wall_s


def simulate_generation(
    groups: Sequence[ServerGroup],
    prompts: Prompts,
    concurrency: int,
    *,
    sharing: Sharing = "time-sliced",
    routing: PolicyName = "least-outstanding",
    threshold: int = THRESHOLD,
    call_s: float = 0.0,
) -> Generation:
    """Requests of `concurrency` clients, each of which sends its next one when it has an answer.

    A router gives them to the generators of the servers, as the gateway would.
    """

    async def run() -> Generation:
        fleet = fleet_of(groups, sharing, call_s, cancel_s=0.0)
        router = router_of(fleet, routing, threshold)
        pairs = {pair.name: pair for pair in fleet.pairs}
        clock = asyncio.get_running_loop().time
        requests = iter(_requests(prompts))
        latencies: list[float] = []

        async def client() -> None:
            for request in requests:
                began = clock()
                lease = router.lease(began)
                assert lease is not None
                await fleet.server.serve(pairs[lease.replica.name].generators, request)
                router.end(lease, clock(), ok=True)
                latencies.append(clock() - began)

        await asyncio.gather(*(client() for _ in range(concurrency)))
        tokens = fleet.totals("generator").generated_tokens
        return Generation(clock(), tokens, tuple(sorted(latencies)))

    return run_virtual(run())


def _requests(prompts: Prompts) -> list[Request]:
    rng = random.Random(prompts.seed)

    def drawn(mean: int) -> int:
        return rng.randint(max(1, mean // 2), mean + mean // 2)

    made = []
    for number in range(prompts.count):
        prompt = np.arange(drawn(prompts.prompt_tokens), dtype=np.int32)
        prompt[0] = -1 - number  # no two have a block in common
        answer = np.zeros(drawn(prompts.answer_tokens), dtype=np.int32)
        made.append(Request(prompt, answer, len(answer)))
    return made
