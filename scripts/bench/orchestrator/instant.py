"""A real Triton server whose models answer at once, so that everything else is what is measured."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from scripts.bench.common import cpu_s, digest_of_all, family_of, logged, thoughts_of
from scripts.bench.instant_server import serve_models
from tts.build.errors import EndpointUnavailable
from tts.build.spec import Deployment
from tts.build.tokenizer import Tokenizer
from tts.datasets.load import load_problems
from tts.driver import Driver, policy_of
from tts.endpoints.triton import TritonConnection
from tts.problem import Problem
from tts.prompting import Models
from tts.search import Search, SearchConfig, node_seed
from tts.serving.command.ports import Addresses
from tts.session.connecting import most_rows
from tts.session.endpoints import endpoints_on
from tts.session.journal import event_of
from tts.strategies.catalog import new_search

from .scripted import END, WORDS

STEPS = 64
"""Different answers of the generator."""
CRASHES = 8


@dataclass(frozen=True)
class Measured:
    """One run against the instant models."""

    thoughts: int
    wall_s: float
    cpu_s: float
    server_cpu_s: float
    digest: str


def measure(
    config: SearchConfig, deployment: Deployment, problems: int, *, rounds: int = 1
) -> list[Measured]:
    """Solve the demo problems on one core; the server has the others, if there are any.

    Triton may crash under models this fast (a segmentation fault of the server); what is left is
    done on another server.
    """
    cores = sorted(os.sched_getaffinity(0))
    steps = _canned_steps(deployment)
    measured: list[Measured] = []
    crashes_left = CRASHES
    try:
        while len(measured) < rounds:
            os.sched_setaffinity(0, cores[1:] or cores)
            with (
                tempfile.TemporaryDirectory(prefix="tts-instant-") as folder,
                serve_models(deployment, Path(folder), "steps", steps) as (addresses, server),
            ):
                os.sched_setaffinity(0, cores[:1])  # what is started from here on inherits it
                left = rounds - len(measured)
                try:
                    asyncio.run(
                        _rounds(config, deployment, addresses, server, problems, left, measured)
                    )
                except EndpointUnavailable:
                    crashes_left -= 1
                    if not crashes_left:
                        raise
    finally:
        os.sched_setaffinity(0, cores)
    return measured


async def _rounds(
    config: SearchConfig,
    deployment: Deployment,
    addresses: Addresses,
    server: psutil.Process,
    problems: int,
    rounds: int,
    measured: list[Measured],
) -> None:
    models = Models.load(deployment)
    rows = most_rows(deployment)
    async with TritonConnection(addresses.grpc, most_rows=rows) as connection:
        solve = partial(solve_all, config, models, connection, server)
        await solve(2)  # imports, and what is made once
        for _ in range(rounds):
            measured.append(await solve(problems))


async def solve_all(
    config: SearchConfig,
    models: Models,
    connection: TritonConnection,
    server: psutil.Process,
    problems: int,
) -> Measured:
    """One run over a connection, logged as every run is."""
    processes = family_of(server)
    searches: dict[str, Search] = {}
    to_solve = load_problems("demo", limit=problems)
    with logged() as log:
        driver = Driver(
            models,
            *endpoints_on(models, connection),
            policy_of(models.deployment, "decoupled"),
            record=lambda record: log.write(event_of(record)),
            clock=log.clock,
        )

        async def one(problem: Problem) -> None:
            new = partial(new_search, config, partial(node_seed, 0, problem.id))
            searches[problem.id] = (await driver.submit(problem, new)).search

        served, wall, cpu = cpu_s(processes), time.perf_counter(), time.process_time()
        async with driver:
            await asyncio.gather(*map(one, to_solve))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        served = cpu_s(processes) - served
    return Measured(thoughts_of(searches), wall, cpu, served, digest_of_all(searches))


def _canned_steps(deployment: Deployment) -> list[list[int]]:
    """Steps as the scripted generator writes them."""
    encode, draw = Tokenizer(deployment.generator.tokenizer_folder).encode, random.Random(0)
    steps = []
    for _ in range(STEPS):
        ids = [token for _ in range(draw.randint(1, 3)) for token in encode(draw.choice(WORDS))]
        steps.append(ids if draw.random() < END else ids + encode("\n\n"))
    return steps
