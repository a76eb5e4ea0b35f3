"""One trial on a fresh server, through the product's own driver, clients and run log."""

from __future__ import annotations

import asyncio
import cProfile
import os
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from scripts.bench.common import (
    cpu_s,
    digest_of_all,
    family_of,
    process_of,
    thoughts_of,
    tree_of,
)
from tts.driver import Driver, policy_of
from tts.endpoints.base import GenerateCall, Generator, ScoreCall, Verifier, VerifierResult
from tts.endpoints.triton import TritonConnection
from tts.lab.tuning.measure import send_all
from tts.problem import Problem
from tts.prompting import Models
from tts.runs import events
from tts.runs.folder import create_run
from tts.runs.log import RunLog, read_events
from tts.runs.requests import occupancy, requests_of
from tts.runs.utilization import Utilization
from tts.search import Search, node_seed
from tts.serving.server.start import RunningServer, start_server
from tts.session.endpoints import endpoints_on, replaying
from tts.session.plan import Plan

from .trials import Measured, Trial


@dataclass(frozen=True)
class KeptGenerator:
    """See endpoints.Generator; keeps the calls that were answered, in the order of sending."""

    inner: Generator
    calls: dict[int, GenerateCall] = field(default_factory=dict)
    """The calls by their seed, which names the node."""

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator."""
        self.calls.setdefault(call.seed, call)
        try:
            return await self.inner.generate(call)
        except BaseException:
            self.calls.pop(call.seed, None)
            raise

    def useful(self, seeds: Collection[int]) -> list[GenerateCall]:
        """The calls of these nodes."""
        return [call for seed, call in self.calls.items() if seed in seeds]


@dataclass(frozen=True)
class KeptVerifier:
    """See endpoints.Verifier; keeps the dialogues that were scored, in the order of sending."""

    inner: Verifier
    calls: dict[bytes, ScoreCall] = field(default_factory=dict)

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        key = call.input_ids.tobytes()
        self.calls.setdefault(key, call)
        try:
            return await self.inner.score(call)
        except BaseException:
            self.calls.pop(key, None)
            raise


SLICES = 24


@dataclass(frozen=True)
class Useful:
    """What a run asked of each engine and needed."""

    calls: list[GenerateCall]
    dialogues: list[ScoreCall]


def run_search(
    plan: Plan, trial: Trial, profile: cProfile.Profile | None = None
) -> tuple[Measured, Useful]:
    """Solve the trial's problems; grading, which is done in other processes, is left out."""
    with start_server(plan.deployment) as server, tempfile.TemporaryDirectory() as folder:
        create_run(Path(folder), plan.config.to_json())
        address = server.addresses.grpc
        with _machine(server) as machine:
            measured, useful = asyncio.run(_search(plan, trial, address, Path(folder), profile))
        use = Utilization.of(read_events(Path(folder)))
        loads = occupancy(requests_of(read_events(Path(folder))), use.run.wall_s, SLICES)
    measured |= machine | use.to_json()
    measured["latencies_s"] = sorted(round(each, 4) for each in use.latencies_s.values())
    measured["occupancy"] = {
        engine: [round(part, 2) for part in load] for engine, load in loads.items()
    }
    return measured, useful


async def _search(
    plan: Plan, trial: Trial, address: str, folder: Path, profile: cProfile.Profile | None
) -> tuple[Measured, Useful]:
    searches: dict[str, Search] = {}
    async with TritonConnection(address) as connection:
        models = plan.limited(Models.load(plan.deployment))
        generator, verifier = _endpoints(plan, models, connection)
        kept_generator, kept_verifier = KeptGenerator(generator), KeptVerifier(verifier)
        cpu = time.process_time()
        if profile:
            profile.enable()
        with RunLog(folder) as log:
            driver = Driver(
                models,
                kept_generator,
                kept_verifier,
                policy_of(
                    plan.deployment,
                    trial.schedule,
                    speculation=trial.speculation or "auto",
                    problems=trial.in_flight,
                ),
                record=log.write,
                clock=log.clock,
            )

            async def solve(problem: Problem) -> None:
                new_search = partial(plan.strategy.new_search, problem, plan.asked.seed)
                solved = await driver.submit(problem, new_search)
                searches[problem.id] = solved.search
                log.write(
                    events.ProblemSolved(
                        t=log.clock(),
                        problem=problem.id,
                        answers={},
                        correct=None,
                        any_correct=None,
                        tree_digest=tree_of(solved.search).digest(),
                    )
                )

            to_solve = plan.problems[: trial.problems]
            began = time.perf_counter()
            async with driver:
                await asyncio.gather(*map(solve, to_solve))
            wall = time.perf_counter() - began
        if profile:
            profile.disable()
        cpu = time.process_time() - cpu
    seeds = {
        node_seed(plan.asked.seed, problem, node.path)
        for problem, search in searches.items()
        for node in tree_of(search)
    }
    useful = Useful(kept_generator.useful(seeds), list(kept_verifier.calls.values()))
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "nodes": thoughts_of(searches),
        "digest": digest_of_all(searches),
        "useful": {"generator": len(useful.calls), "verifier": len(useful.dialogues)},
    }, useful


def _endpoints(
    plan: Plan, models: Models, connection: TritonConnection
) -> tuple[Generator, Verifier]:
    if plan.replay:
        return replaying(plan.replay, connection)
    return endpoints_on(models, connection)


def run_saturated(plan: Plan, trial: Trial, useful: Useful) -> Measured:
    """The trial's engines' useful work without dependencies, as much in flight as allowed."""
    with start_server(plan.deployment) as server, _machine(server) as machine:
        wall = asyncio.run(_saturated(plan, trial, useful, server.addresses.grpc))
    return {"wall_s": wall} | machine


async def _saturated(plan: Plan, trial: Trial, useful: Useful, address: str) -> float:
    spec = plan.deployment
    async with TritonConnection(address) as connection:
        models = plan.limited(Models.load(plan.deployment))
        generator, verifier = _endpoints(plan, models, connection)
        began = time.perf_counter()
        work = []
        if trial.what != "verifier":
            budget = spec.generator.in_flight_requests
            work.append(send_all(useful.calls, lambda _: 1, budget, generator.generate))
        if trial.what != "generator":
            budget = spec.verifier.in_flight_tokens
            work.append(
                send_all(useful.dialogues, lambda call: len(call.input_ids), budget, verifier.score)
            )
        await asyncio.gather(*work)
        return time.perf_counter() - began


@contextmanager
def _machine(server: RunningServer) -> Iterator[Measured]:
    """What the server's processes used, and what others took of the machine, in the block."""
    processes = family_of(process_of(server))

    def now() -> tuple[float, float, float, float]:
        whole = psutil.cpu_times()
        busy = sum(whole[:3]) + getattr(whole, "steal", 0.0)  # user, nice, system
        return time.perf_counter(), busy, cpu_s(processes), time.process_time()

    used: Measured = {}
    before = now()
    yield used
    wall, busy, ours, own = (b - a for a, b in zip(before, now(), strict=True))
    used["server_cpu_s"] = ours
    used["others_share"] = max(0.0, busy - ours - own) / (wall * (os.cpu_count() or 1))


def profiled(plan: Plan, problems: int) -> cProfile.Profile:
    """Where the orchestrator's time goes in one more run."""
    profile = cProfile.Profile(time.process_time)  # not the time spent waiting
    run_search(plan, Trial("walls", "demo", 0, problems), profile)
    return profile
