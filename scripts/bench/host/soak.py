"""Thousands of requests, cancelled and bad ones among them: right answers, nothing left behind."""

from __future__ import annotations

import asyncio
import random
import time
import urllib.request
from collections import Counter
from typing import Any

import numpy as np

from tts.engines import wire
from tts.serving.server.start import RunningServer

from .requests import Bare, Client, Work, make_works, processes_of

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
    with urllib.request.urlopen(f"http://{server.addresses.metrics}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    mine = [line for line in lines if "nv_trt_llm" in line and f'"{wire.GENERATOR}"' in line]
    return {
        label: float(line.rsplit(" ", 1)[1])
        for line in mine
        for label in ("active", "scheduled", "used")
        if f'_type="{label}"' in line
    }
