"""One trial on fresh engines, through the product's own loop, driver, clients and run log."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from scripts.bench.common import cpu_s, digest_of_all, family_of, thoughts_of, tree_of
from tts.build.errors import ServerError
from tts.build.spec import Deployment
from tts.driver import Driver, policy_of
from tts.endpoints.base import (
    Connection,
    GenerateCall,
    Generator,
    ScoreCall,
    Verifier,
    VerifierResult,
)
from tts.lab.tuning.measure import send_all
from tts.problem import Problem
from tts.prompting import Models
from tts.runs import events
from tts.runs.folder import create_run
from tts.runs.log import RunLog, read_events
from tts.runs.measures import Measures
from tts.runs.requests import occupancy, requests_of
from tts.search import Search, node_seed
from tts.serving.server.lookup import find_server
from tts.session.endpoints import endpoints_on
from tts.session.engines import Engines
from tts.session.plan import Plan

from .replaying import ReplayPlan, replaying
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


async def run_search(plan: Plan, trial: Trial) -> tuple[Measured, Useful]:
    """Solve the trial's problems; grading, which is done in other processes, is left out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_run(folder, plan.config.to_json())
        async with _opened(plan) as (models, generator, verifier):
            measured, useful = await _search(plan, trial, folder, models, generator, verifier)
        measures = Measures.of(read_events(folder))
        loads = occupancy(requests_of(read_events(folder)), measures.wall_s, SLICES)
    measured |= measures.engine_use()
    measured["latencies_s"] = sorted(round(each, 4) for each in measures.latencies_s)
    measured["occupancy"] = {
        engine: [round(part, 2) for part in load] for engine, load in loads.items()
    }
    return measured, useful


async def _search(
    plan: Plan,
    trial: Trial,
    folder: Path,
    models: Models,
    generator: Generator,
    verifier: Verifier,
) -> tuple[Measured, Useful]:
    searches: dict[str, Search] = {}
    kept_generator, kept_verifier = KeptGenerator(generator), KeptVerifier(verifier)
    with RunLog(folder) as log, _measured(plan.deployment) as measured:
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
                    groups=(),
                    t=log.clock(),
                    problem=problem.id,
                    answers={},
                    correct=None,
                    any_correct=None,
                    tree_digest=tree_of(solved.search).digest(),
                )
            )

        async with driver:
            await asyncio.gather(*map(solve, plan.problems[: trial.problems]))
    seeds = {
        node_seed(plan.asked.seed, problem, node.path)
        for problem, search in searches.items()
        for node in tree_of(search)
    }
    useful = Useful(kept_generator.useful(seeds), list(kept_verifier.calls.values()))
    measured |= {
        "nodes": thoughts_of(searches),
        "digest": digest_of_all(searches),
        "useful": {"generator": len(useful.calls), "verifier": len(useful.dialogues)},
    }
    return measured, useful


async def run_saturated(plan: Plan, trial: Trial, useful: Useful) -> Measured:
    """The trial's engines' useful work without dependencies, as much in flight as allowed."""
    spec = plan.deployment
    async with _opened(plan) as (_, generator, verifier):
        with _measured(spec) as measured:
            work = []
            if trial.what != "verifier":
                budget = spec.generator.in_flight_requests
                work.append(send_all(useful.calls, lambda _: 1, budget, generator.generate))
            if trial.what != "generator":
                budget = spec.verifier.in_flight_tokens
                work.append(
                    send_all(
                        useful.dialogues, lambda call: len(call.input_ids), budget, verifier.score
                    )
                )
            await asyncio.gather(*work)
    return measured


@asynccontextmanager
async def _opened(plan: Plan) -> AsyncIterator[tuple[Models, Generator, Verifier]]:
    """Engines that nobody else uses, as a session opens them; raises ServerError."""
    opening = Engines(
        plan.deployment,
        (None, None),
        addresses=(),
        routing=None,
        groups={},
        say=lambda line: None,
        on_loading=lambda loading: None,
    )
    async with opening as engines:
        if engines.server and not engines.server.started:
            raise ServerError(
                f"A server of {plan.deployment.name} runs already, and is not as new.",
                hint=f"Stop it: tts serve {plan.deployment.named} --stop",
            )
        models = engines.models
        connection = engines.replicas.pairs[0].connection
        assert connection is not None
        yield models, *_endpoints(plan, models, connection)


def _endpoints(plan: Plan, models: Models, connection: Connection) -> tuple[Generator, Verifier]:
    if isinstance(plan, ReplayPlan):
        return replaying(plan.script, connection)
    return endpoints_on(models, connection)


@contextmanager
def _measured(deployment: Deployment) -> Iterator[Measured]:
    """Wall time, processor time by process, and what others took of the machine, in the block."""
    processes = _processes(deployment)

    def now() -> tuple[float, float, dict[str, float]]:
        whole = psutil.cpu_times()
        busy = sum(whole[:3]) + getattr(whole, "steal", 0.0)  # user, nice, system
        ours = {name: cpu_s(members) for name, members in processes.items()}
        return time.perf_counter(), busy, {"orchestrator": time.process_time(), **ours}

    measured: Measured = {}
    began, busy, spent = now()
    yield measured
    ended, all_busy, all_spent = now()
    wall, cores = ended - began, len(os.sched_getaffinity(0))
    ours = {name: all_spent[name] - spent[name] for name in spent}
    others = max(0.0, all_busy - busy - sum(ours.values()))
    measured |= {
        "wall_s": wall,
        "cores": cores,
        "cpu_s": {name: round(seconds, 3) for name, seconds in ours.items()},
        "others_share": others / (wall * (os.cpu_count() or 1)),
    }


def _processes(deployment: Deployment) -> dict[str, list[psutil.Process]]:
    """Those that run the engines, by what they are."""
    found: dict[str, list[psutil.Process]] = defaultdict(list)
    if deployment.server.kind == "embedded":
        running = psutil.Process().children(recursive=True)
    else:
        server = find_server(deployment)
        assert server is not None
        assert server.server is not None
        running = family_of(psutil.Process(server.server.pid))
    for process in running:
        found[_name(process)].append(process)
    return dict(found)


def _name(process: psutil.Process) -> str:
    words = process.cmdline()
    if any("tts.engines.engine_process" in word for word in words):
        # one behind Triton has the name of its model from the stub that has started it
        named = " ".join([*words, *psutil.Process(process.ppid()).cmdline()])
        return "generator engine" if "/generator" in named else "verifier engine"
    if any(word.endswith("/model.py") for word in words):
        return "stubs"
    return "tritonserver" if "tritonserver" in words[0] else "others"
