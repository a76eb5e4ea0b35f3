"""Simulate few wide servers against many narrow ones, at 1 to 512 requests or problems at a time.

One engine split over all GPUs, as many servers as there are GPUs, and what lies between; and the
router's policy by-concurrency between the first and the last, both of which are then on the same
GPUs. Everything here is simulated (docs/explanation/simulation.md).

    scripts/run bench.routing                        # plain generation, 8 H100, an 8B model in bf16
    scripts/run bench.routing --gpu l40s --prompt 2048
    scripts/run bench.routing --model Mixtral-8x7B-Instruct-v0.1 --precision fp8
    scripts/run bench.routing --search               # beam search with an 8B verifier: minutes
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from tts.build.spec import Deployment, EngineSpec, Role
from tts.build.tensorrt.gpus import GIB, GPUS
from tts.build.tensorrt.model_shape import known_names
from tts.endpoints.routing import PolicyName
from tts.endpoints.routing.policies import THRESHOLD
from tts.engines.simulated import Request, Sharing
from tts.lab.simulation.fleet import ServerGroup, fleet_of, router_of
from tts.lab.simulation.pairs import VERIFIER, as_simulated, shapes_of
from tts.lab.simulation.scenario import Scenario, simulate
from tts.lab.simulation.virtual_time import run_virtual
from tts.lab.simulation.workload import typical
from tts.strategies.catalog import find_strategy


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


CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MEMORY_SHARE = 0.9
MAX_SEQ_LEN = 4096
Speed = Callable[[Sequence[ServerGroup], int, PolicyName], float]


def parsed() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", choices=sorted(GPUS), default="h100")
    parser.add_argument("--gpus", type=int, default=8, choices=(2, 4, 8))
    parser.add_argument("--model", choices=known_names(), default="Llama-3.1-8B-Instruct")
    parser.add_argument("--precision", choices=("bf16", "fp8"), default="bf16")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt, on average")
    parser.add_argument("--answer", type=int, default=256, help="tokens of an answer, on average")
    parser.add_argument("--search", action="store_true", help="beam search instead")
    parser.add_argument("--n", type=int, default=4, help="with --search: completions per problem")
    parser.add_argument("--threshold", type=int, default=THRESHOLD, help="of by-concurrency")
    return parser.parse_args()


def server(options: argparse.Namespace, width: int) -> Deployment:
    """Both engines over `width` GPUs, with the smallest pools."""

    def engine(name: str) -> dict[str, Any]:
        return {
            "checkpoint": name,
            "precision": options.precision,
            "max_batch_size": 512,
            "max_num_tokens": 8192,
            "max_seq_len": MAX_SEQ_LEN,
            "kv_cache": {"tokens": MAX_SEQ_LEN},
            "tensorrt": {
                "tensor_parallel": width,
                "gpus": [list(range(width))],
                "kv_precision": "fp8" if options.precision == "fp8" else "auto",
            },
        }

    return as_simulated(
        Deployment.model_validate(
            {
                "name": f"tp{width}",
                "target": "tensorrt",
                "tensorrt": {"gpu": options.gpu},
                "generator": {**engine(options.model), "in_flight_requests": 512},
                "verifier": {**engine(VERIFIER), "in_flight_tokens": 65536},
            }
        )
    )


def groups_of(options: argparse.Namespace) -> list[ServerGroup]:
    """A group for each width that fits, the widest first.

    The widest and the narrowest are together on the GPUs of the routed runs, so what their weights
    leave is divided equally among all their engines; the others have as much.
    """
    roles: tuple[Role, ...] = ("generator", "verifier") if options.search else ("generator",)
    widths = [1 << power for power in range(options.gpus.bit_length())]
    servers = {width: server(options, width) for width in widths}
    weights = {
        width: sum(shapes_of(each, cut=True)[role].weight_bytes for role in roles)
        for width, each in servers.items()
    }

    def left(width: int) -> float:
        free = GPUS[options.gpu].memory * MEMORY_SHARE - weights[width] - weights[options.gpus]
        return free / (2 * len(roles))

    groups = []
    for width, each in servers.items():
        shapes = shapes_of(each, cut=True)
        pools = {role: int(left(width) / shapes[role].kv_bytes) for role in roles}
        if min(pools.values()) < 2 * MAX_SEQ_LEN:
            continue
        engines: dict[str, EngineSpec] = {
            role: with_pool(each.engines()[role], tokens) for role, tokens in pools.items()
        }
        deployment = each.model_copy(update=engines)
        groups.append(ServerGroup(deployment, options.gpus // width, f"tp{width}"))
    return groups[::-1]


def with_pool(spec: EngineSpec, tokens: int) -> EngineSpec:
    """The engine with so many tokens in its KV pool."""
    return spec.model_copy(update={"kv_cache": spec.kv_cache.model_copy(update={"tokens": tokens})})


def generated(options: argparse.Namespace) -> Speed:
    """Tokens per second of all requests."""

    def speed(groups: Sequence[ServerGroup], concurrency: int, routing: PolicyName) -> float:
        prompts = Prompts(max(16, 4 * concurrency), options.prompt, options.answer)
        return simulate_generation(
            groups, prompts, concurrency, routing=routing, threshold=options.threshold
        ).tokens_per_s

    return speed


def searched(options: argparse.Namespace) -> Speed:
    """Problems per minute."""
    parameters = find_strategy("beam-search").configure({"n": options.n}, context=MAX_SEQ_LEN)

    def speed(groups: Sequence[ServerGroup], concurrency: int, routing: PolicyName) -> float:
        scenario = Scenario(
            groups[0].deployment,
            "time-sliced",
            typical(),
            parameters,
            problems=max(8, concurrency, min(2 * concurrency, 64)),
            in_flight=concurrency,
            call_s=0.0,  # engines alone: an orchestrator's processor would hide them
            groups=tuple(groups),
            routing=routing,
            threshold=options.threshold,
        )
        return 60 * scenario.problems / simulate(scenario, "decoupled").wall_s

    return speed


def crossing(wide: Sequence[float], narrow: Sequence[float]) -> str:
    """Where the narrow servers overtake the wide one, in a sentence."""
    ahead = [slow > fast for fast, slow in zip(wide, narrow, strict=True)]
    if not any(ahead):
        return "The widest is ahead at every concurrency."
    if all(ahead):
        return "The narrowest are ahead at every concurrency."
    place = ahead.index(True)
    return (
        f"The widest is ahead up to {CONCURRENCIES[place - 1]} at a time, "
        f"the narrowest from {CONCURRENCIES[place]} on."
    )


def main() -> None:
    """Simulate what the command line asks for, and print the table."""
    options = parsed()
    console = Console()
    groups = groups_of(options)
    if len(groups) < 2:
        free = GPUS[options.gpu].memory / GIB
        raise SystemExit(f"{options.model} in {options.precision}: {free:.0f} GiB are too little.")
    speed = searched(options) if options.search else generated(options)
    unit = "problems per minute" if options.search else "tokens per second"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("at a\ntime", justify="right")
    for group in groups:
        heading = (
            group.name.upper() if group.count == 1 else f"{group.count} x {group.name.upper()}"
        )
        table.add_column(heading, justify="right")
    table.add_column("widest over\nnarrowest", justify="right")
    table.add_column(f"routed at\n{options.threshold}", justify="right")
    rows = []
    for concurrency in CONCURRENCIES:
        row = [speed([group], concurrency, "prefix-affinity") for group in groups]
        routed = speed([groups[0], groups[-1]], concurrency, "by-concurrency")
        rows.append(row)
        cells = [f"{each:,.0f}" for each in row]
        table.add_row(str(concurrency), *cells, f"{row[0] / row[-1]:.2f}", f"{routed:,.0f}")
    what = (
        f"beam search with n={options.n} and {VERIFIER}"
        if options.search
        else f"prompts of {options.prompt} and answers of {options.answer} tokens"
    )
    console.print(
        f"[bold]simulated[/]: {unit} of {options.model} in {options.precision} on {options.gpus} x "
        f"{options.gpu.upper()} ({GPUS[options.gpu].link.name}); {what}",
        soft_wrap=True,
    )
    console.print(table)
    console.print(crossing([row[0] for row in rows], [row[-1] for row in rows]))


if __name__ == "__main__":
    main()
