"""A real Triton server whose models answer at once, so that everything else is what is measured."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from scripts.bench.instant_server import PRM_CONFIG, serve_models
from scripts.bench.trees import digest_of_all, thoughts_of
from tts.build.errors import EndpointUnavailable
from tts.build.spec import Deployment
from tts.build.tokenizer import Tokenizer
from tts.datasets.load import load_problems
from tts.driver import Driver, policy_of
from tts.endpoints.triton import TritonConnection
from tts.problem import Problem
from tts.prompting import Models
from tts.runs.folder import create_run
from tts.runs.log import RunLog
from tts.search import Search, SearchConfig, node_seed
from tts.serving.command.ports import Addresses
from tts.serving.repository.render import render_models, template_values
from tts.session.endpoints import endpoints_on
from tts.strategies.catalog import new_search

from .scripted import END, WORDS

MODELS = Path(__file__).parent / "instant_models"
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


@contextmanager
def instant_server(deployment: Deployment) -> Iterator[tuple[Addresses, psutil.Process]]:
    """A Triton server of its own, with the address of its gRPC endpoint and its process."""
    with (
        tempfile.TemporaryDirectory(prefix="tts-instant-") as folder,
        serve_models(deployment, Path(folder), _write_models) as served,
    ):
        yield served


def measure(
    config: SearchConfig, deployment: Deployment, problems: int, *, rounds: int = 1
) -> list[Measured]:
    """Solve the demo problems on one core; the server has the others, if there are any.

    Triton may crash under models this fast (a segmentation fault of the server); what is left is
    done on another server.
    """
    cores = sorted(os.sched_getaffinity(0))
    measured: list[Measured] = []
    crashes_left = CRASHES
    try:
        while len(measured) < rounds:
            os.sched_setaffinity(0, cores[1:] or cores)
            with instant_server(deployment) as (addresses, server):
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
    async with TritonConnection(addresses.grpc) as connection:
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
    processes = [server, *server.children(recursive=True)]
    searches: dict[str, Search] = {}
    to_solve = load_problems("demo", limit=problems)
    with tempfile.TemporaryDirectory() as folder:
        create_run(Path(folder), {})
        with RunLog(Path(folder)) as log:
            driver = Driver(
                models,
                *endpoints_on(models, connection),
                policy_of(models.deployment, "decoupled"),
                record=log.write,
                clock=log.clock,
            )

            async def one(problem: Problem) -> None:
                new = partial(new_search, config, partial(node_seed, 0, problem.id))
                searches[problem.id] = (await driver.submit(problem, new)).search

            served, wall, cpu = _cpu_s(processes), time.perf_counter(), time.process_time()
            async with driver:
                await asyncio.gather(*map(one, to_solve))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            served = _cpu_s(processes) - served
    thoughts = thoughts_of(searches)
    digest = digest_of_all(searches)
    return Measured(thoughts, wall, cpu, served, digest)


def _cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _write_models(deployment: Deployment, target: Path) -> None:
    """The repository: the deployment's own configuration of the generator, and a plain prm."""
    render_models(deployment, template_values(deployment, iteration_log=False), target)
    for model in ("prm_engine", "prm_score", "prm"):
        shutil.rmtree(target / model)
    shutil.copytree(MODELS, target, dirs_exist_ok=True)
    (target / "prm" / "config.pbtxt").write_text(PRM_CONFIG + "dynamic_batching {}\n")
    with (target / "generator" / "config.pbtxt").open("a") as config:
        text = json.dumps(_canned_steps(deployment))
        config.write(f'\nparameters {{ key: "steps" value {{ string_value: "{text}" }} }}\n')


def _canned_steps(deployment: Deployment) -> list[list[int]]:
    """Steps as the scripted generator writes them."""
    encode, draw = Tokenizer(deployment.generator.checkpoint).encode, random.Random(0)
    steps = []
    for _ in range(STEPS):
        ids = [token for _ in range(draw.randint(1, 3)) for token in encode(draw.choice(WORDS))]
        steps.append(ids if draw.random() < END else ids + encode("\n\n"))
    return steps
