"""Measure the engine host of a deployment: what the way through Triton costs, and whether it lasts.

speed  tokens per second at several numbers of requests in flight, through gRPC and with the bare
       pipeline in turns (A B B A), so that both see the same machine, and the CPU seconds of each
       process per 1,000 tokens; with one and with two threads for the engine.
soak   thousands of requests with cancellations and every kind of bad request among them: no crash,
       no wrong answer, no KV block and no memory left behind.

    scripts/run bench.host demo --output bench.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tts.build import paths
from tts.build.builder import build_engines
from tts.build.manifest import read_engine_config
from tts.build.spec import Deployment, load_deployment
from tts.engines import wire
from tts.engines.generate_request import GenerateRequest, Limits
from tts.engines.pipeline import RUNNING, add_request, open_pipeline
from tts.serving.server.start import RunningServer, start_server

CANCELLED_SHARE = 0.2
BAD_SHARE = 0.1
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "id outside the vocabulary": (
        {"input_ids": np.array([[10**6]], np.int32), "input_lengths": 1},
        "vocabulary",
    ),
    "long prompt": (
        {"input_ids": np.full((1, 10**5), 5, np.int32), "input_lengths": 10**5},
        "longest admissible",
    ),
    "empty prompt": ({"input_ids": np.zeros((1, 0), np.int32)}, "input_ids"),
    "wrong rank": ({"input_ids": np.zeros(3, np.int32)}, "input_ids"),
    "length disagrees": ({"input_lengths": 10**6}, "input_lengths"),
    "no output": ({"request_output_len": 0}, "request_output_len"),
    "NaN temperature": ({"temperature": float("nan")}, "temperature"),
    "top_p": ({"runtime_top_p": 2.0}, "runtime_top_p"),
    "top_k": ({"runtime_top_k": -1}, "runtime_top_k"),
    "stop words": ({"stop_words_list": np.array([[[5], [0]]], np.int32)}, "stop_words_list"),
    "beams": ({"beam_width": 2}, "beam_width"),
    "generation logits": ({"return_generation_logits": True}, "generation"),
    "stop of nothing": ({"stop": True}, "stop"),
}


@dataclass(frozen=True)
class Work:
    """One sampled request; `stop_words` as on the wire."""

    prompt: tuple[int, ...]
    tokens: int
    seed: int
    stop_words: tuple[tuple[int, ...], ...] = ()

    def tensors(self) -> dict[str, Any]:
        """The request as it goes over the wire."""
        tensors: dict[str, Any] = {
            "input_ids": np.array([self.prompt], np.int32),
            "input_lengths": len(self.prompt),
            "request_output_len": self.tokens,
            "runtime_top_p": 1.0,
            "seed": self.seed,
        }
        if self.stop_words:
            tensors["stop_words_list"] = wire.encode_stop_words(self.stop_words)[None]
        return tensors

    def request(self) -> GenerateRequest:
        """The request as the pipeline takes it."""
        ids = np.array(self.prompt, np.int64)
        return GenerateRequest(
            ids, self.tokens, top_p=1.0, seed=self.seed, stop_words=self.stop_words
        )


class Client:
    """One stream per request, as the contract asks."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def start(self, tensors: dict[str, Any]) -> Any:
        """Send one request; its stream of answers."""
        message = service_pb2.ModelInferRequest(model_name=wire.GENERATOR)
        for name, value in tensors.items():
            array = value if isinstance(value, np.ndarray) else wire.scalar(name, value)
            message.inputs.add(name=name, datatype=wire.INPUTS[name], shape=array.shape)
            message.raw_input_contents.append(array.tobytes())
        return self._stub.ModelStreamInfer(iter([message]), timeout=120)

    async def generate(self, tensors: dict[str, Any]) -> tuple[list[int], str]:
        """Tokens and error, one of which is empty."""
        async for answer in self.start(tensors):
            if answer.error_message:
                return [], answer.error_message
            names = [output.name for output in answer.infer_response.outputs]
            raw = answer.infer_response.raw_output_contents[names.index("output_ids")]
            return np.frombuffer(raw, np.int32).tolist(), ""
        return [], "the stream ended without an answer"

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


class Bare:
    """The pipeline without host and server, doing nothing but the work."""

    def __init__(self, deployment: Deployment) -> None:
        spec = deployment.generator
        folder = paths.engine_dir(deployment.name, "generator")
        self.config = read_engine_config(folder)
        limits = Limits(
            vocab_size=self.config.vocab_size,
            max_seq_len=spec.max_seq_len,
            max_num_tokens=spec.max_num_tokens,
            block_size=spec.kv_cache.block_size,
            blocks=spec.kv_cache.blocks,
            max_active=spec.max_batch_size,
            chunked_context=spec.chunked_context,
            kv_reuse=spec.kv_cache.reuse,
        )
        self._pipeline = open_pipeline(folder, self.config, limits, spec.threads or 1)
        self._number = 0

    def run(self, works: list[Work], in_flight: int) -> list[list[int]]:
        """The answers of the bare pipeline, with so many requests in flight."""
        queue = list(reversed(list(enumerate(works))))
        results: list[list[int]] = [[] for _ in works]
        active: dict[int, Any] = {}
        while queue or active:
            while queue and len(active) < in_flight:
                index, work = queue.pop()
                self._number += 1
                handle = add_request(self._pipeline, self._number, work.request(), log_probs=False)
                active[index] = handle
            self._pipeline.step()
            for index, handle in list(active.items()):
                if handle.get_status().value != RUNNING:
                    (output,) = handle.read_all()
                    results[index] = list(output.generated_ids)
                    del active[index]
        return results


def make_works(bare: Bare, count: int, prompt: int, tokens: int, seed: int) -> list[Work]:
    """So many requests with random prompts."""
    numbers = np.random.default_rng(seed)
    prompts = numbers.integers(5, bare.config.vocab_size, (count, prompt)).tolist()
    return [Work(tuple(ids), tokens, seed * 10**6 + n) for n, ids in enumerate(prompts)]


def server_cpu(processes: list[psutil.Process]) -> float:
    """CPU seconds of these processes so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def own_cpu() -> float:
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def processes_of(server: RunningServer, model: str) -> tuple[psutil.Process, list[psutil.Process]]:
    """The tritonserver process; the stub of one model and its engine."""
    assert server.state.server is not None
    root = psutil.Process(server.state.server.pid)
    for child in root.children():
        if f"/{model}/1/model.py" in " ".join(child.cmdline()):
            return root, [child, *child.children()]
    raise SystemExit(f"the stub process of {model} was not found")


async def through_grpc(client: Client, works: list[Work], in_flight: int) -> list[list[int]]:
    """The answers through Triton, with so many requests in flight."""
    slots = asyncio.Semaphore(in_flight)

    async def one(work: Work) -> list[int]:
        async with slots:
            tokens, error = await client.generate(work.tensors())
            if error:
                raise SystemExit(f"a good request was refused: {error}")
            return tokens

    return await asyncio.gather(*(one(work) for work in works))


AIM = 0.95  # of the bare pipeline's tokens per second, at AIM_IN_FLIGHT with one thread
AIM_IN_FLIGHT = 64


async def speed(
    server: RunningServer,
    bare: Bare,
    levels: list[int],
    rounds: int,
    prompt: int,
    tokens: int,
    threads: int,
) -> list[dict[str, float]]:
    """A row for each level: medians of the rounds, the first of which is not counted."""
    client = Client(server.addresses.grpc)
    triton, host = processes_of(server, wire.GENERATOR)
    rows = []
    for in_flight in levels:
        count = max(8, in_flight * 3)
        turns: list[dict[str, float]] = []
        for turn in range(rounds + 1):
            works = make_works(bare, count, prompt, tokens, seed=in_flight * 100 + turn)
            sides: dict[str, list[list[int]]] = {}
            used: dict[str, float] = {}
            for side in ("bare", "grpc") if turn % 2 else ("grpc", "bare"):
                started, own = time.perf_counter(), own_cpu()
                before = [server_cpu(processes) for processes in (host, [triton])]
                if side == "bare":
                    sides[side] = bare.run(works, in_flight)
                else:
                    sides[side] = await through_grpc(client, works, in_flight)
                    after = [server_cpu(processes) for processes in (host, [triton])]
                    used["host_cpu"], used["triton_cpu"] = np.subtract(after, before)
                used[f"{side}_s"] = time.perf_counter() - started
                used["bare_cpu" if side == "bare" else "client_cpu"] = own_cpu() - own
            if sides["grpc"] != sides["bare"]:
                raise SystemExit(f"answers differ from the bare pipeline at {in_flight} in flight")
            used["thousands"] = sum(map(len, sides["grpc"])) / 1000
            turns.append(used)
        rows.append(row_of(threads, in_flight, turns[1:]))
        print_row(rows[-1], header=len(rows) == 1)
    await client.close()
    return rows


def row_of(threads: int, in_flight: int, turns: list[dict[str, float]]) -> dict[str, float]:
    """Medians over the rounds."""

    def median(value: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(map(value, turns))

    def per_thousand(name: str, turn: dict[str, float]) -> float:
        return turn[name] / turn["thousands"]

    return {
        "threads": threads,
        "in_flight": in_flight,
        "bare_tokens_per_s": median(lambda turn: 1000 * turn["thousands"] / turn["bare_s"]),
        "grpc_tokens_per_s": median(lambda turn: 1000 * turn["thousands"] / turn["grpc_s"]),
        "grpc_over_bare": median(lambda turn: turn["bare_s"] / turn["grpc_s"]),
    } | {
        f"{name}_s_per_1000": median(partial(per_thousand, name))
        for name in ("bare_cpu", "host_cpu", "triton_cpu", "client_cpu")
    }


def print_row(row: dict[str, float], *, header: bool) -> None:
    """Print one line of the table of speeds."""
    if header:
        print("  ".join(f"{name:>19}" for name in row))
    cells = (f"{value:.3f}" if value < 50 else f"{value:.0f}" for value in row.values())
    print("  ".join(f"{cell.removesuffix('.000'):>19}" for cell in cells), flush=True)


async def soak(server: RunningServer, bare: Bare, requests: int, in_flight: int) -> dict[str, Any]:
    """Run the mixture; raises SystemExit at the first wrong answer."""
    dice = random.Random(0)
    works = [
        Work(work.prompt[: dice.randint(4, 60)], dice.randint(1, 40), work.seed)
        for work in make_works(bare, 200, 60, 40, seed=7)
    ]
    plain = [bare.run([work], 1)[0] for work in works]
    references = dict(zip(works, plain, strict=True))
    for work, tokens in zip(works[::2], plain[::2], strict=True):  # half of them end at stop words
        word = tuple(tokens[len(tokens) // 2 :][: dice.randint(1, 2)])
        end = next(
            e for e in range(1, len(tokens) + 1) if tuple(tokens[max(0, e - len(word)) : e]) == word
        )
        references[Work(work.prompt, work.tokens, work.seed, (word,))] = tokens[:end]
    pool = list(references)
    client = Client(server.addresses.grpc)
    _, host = processes_of(server, wire.GENERATOR)
    counts: Counter[str] = Counter()
    slots = asyncio.Semaphore(in_flight)

    async def one() -> None:
        async with slots:
            fate = dice.random()
            if fate < CANCELLED_SHARE:
                work = dice.choice(pool)
                call = client.start({**work.tensors(), "streaming": dice.random() < 0.5})
                await asyncio.sleep(dice.random() * 0.05)
                call.cancel()
                counts["cancelled"] += 1
            elif fate < CANCELLED_SHARE + BAD_SHARE:
                kind = dice.choice(list(BAD))
                change, reason = BAD[kind]
                tokens, error = await client.generate({**dice.choice(works).tensors(), **change})
                if tokens or reason not in error:
                    raise SystemExit(f"{kind}: expected a refusal, got {tokens or error!r}")
                counts["refused"] += 1
            else:
                work = dice.choice(pool)
                tokens, error = await client.generate(work.tensors())
                if tokens != references[work]:
                    raise SystemExit(f"wrong answer: {tokens} {error} for {work}")
                counts["answered"] += 1

    await asyncio.gather(*(one() for _ in range(requests // 3)))  # reach the working size first
    before = sum(process.memory_info().rss for process in host)
    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(requests)))
    seconds = time.perf_counter() - started
    await client.close()
    await asyncio.sleep(0.5)
    gauges = await asyncio.to_thread(read_gauges, server)
    left = {name: gauges[name] for name in ("active", "used", "scheduled")}
    if any(left.values()):
        raise SystemExit(f"something was left behind: {left}")
    server.check()
    after = sum(process.memory_info().rss for process in host)
    return {
        **counts,
        "seconds": seconds,
        "left": left,
        "rss_before_mb": before / 1e6,
        "rss_after_mb": after / 1e6,
    }


def read_gauges(server: RunningServer) -> dict[str, float]:
    """The server's metrics whose value is a single number, by name."""
    import urllib.request

    with urllib.request.urlopen(f"http://{server.addresses.metrics}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    mine = [line for line in lines if "nv_trt_llm" in line and f'"{wire.GENERATOR}"' in line]
    return {
        label: float(line.rsplit(" ", 1)[1])
        for line in mine
        for label in ("active", "scheduled", "used")
        if f'_type="{label}"' in line
    }


async def measure(
    server: RunningServer, bare: Bare, arguments: argparse.Namespace, threads: int, soaking: bool
) -> dict[str, Any]:
    """All that is measured with so many threads."""
    # in one event loop: grpc.aio is not made for several in one process
    levels = [int(level) for level in arguments.in_flight.split(",") if level]
    results: dict[str, Any] = {
        "speed": await speed(
            server, bare, levels, arguments.rounds, arguments.prompt, arguments.tokens, threads
        )
    }
    if soaking:
        results["soak"] = await soak(server, bare, arguments.soak, in_flight=64)
        print(json.dumps(results["soak"]))
    return results


def with_threads(deployment: Deployment, threads: int) -> Deployment:
    """The deployment with so many threads for its generator."""
    generator = deployment.generator.model_copy(update={"threads": threads})
    return deployment.model_copy(update={"generator": generator})


async def measure_all(deployment: Deployment, arguments: argparse.Namespace) -> dict[str, Any]:
    """A server for each number of threads; the soak on the first."""
    results: dict[str, Any] = {"speed": []}
    for threads in map(int, arguments.threads.split(",")):
        served = with_threads(deployment, threads)
        with start_server(served) as server:
            soaking = bool(arguments.soak) and "soak" not in results
            measured = await measure(server, Bare(served), arguments, threads, soaking)
        results["speed"] += measured.pop("speed")
        results |= measured
    return results


def verdict(rows: list[dict[str, float]]) -> str:
    """The aim beside the result, if it was measured."""
    for row in rows:
        if (row["threads"], row["in_flight"]) == (1, AIM_IN_FLIGHT):
            share = row["grpc_over_bare"]
            result = f"{share:.3f}, aim {AIM}: {'met' if share >= AIM else 'not met'}"
            return f"through gRPC over bare at {AIM_IN_FLIGHT} in flight: {result}"
    return f"the aim is for {AIM_IN_FLIGHT} in flight and one thread, which were not measured"


def main() -> None:
    """Measure what the command line asks for, and write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("deployment", help="name of a bundled deployment, or a file")
    parser.add_argument("--threads", default="1,2", help="of the engine, comma-separated")
    parser.add_argument("--in-flight", default="1,8,64", help="comma-separated levels")
    parser.add_argument("--rounds", type=int, default=3, help="turns of bare and gRPC per level")
    parser.add_argument("--prompt", type=int, default=64, help="prompt length, tokens")
    parser.add_argument("--tokens", type=int, default=100, help="tokens to sample per request")
    parser.add_argument("--soak", type=int, default=3000, metavar="N", help="requests; 0 for none")
    parser.add_argument("--output", type=Path, help="write the numbers to this JSON file")
    arguments = parser.parse_args()
    deployment = load_deployment(arguments.deployment)
    build_engines(deployment, say=lambda line: print(line, file=sys.stderr))
    results: dict[str, Any] = {"deployment": deployment.name, "cpus": os.cpu_count()}
    results |= asyncio.run(measure_all(deployment, arguments))
    print(verdict(results["speed"]))
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
