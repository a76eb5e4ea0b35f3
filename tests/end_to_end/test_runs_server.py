"""Whole runs of the demo pair on a real server, through the command line, and what can go wrong."""

import asyncio
import threading
from dataclasses import replace
from typing import get_args

import msgspec
import numpy as np
import pytest
from tests.amounts import amount
from tests.end_to_end.commands import (
    Tts,
    carry_out,
    events,
    part_of_server,
    servers,
    summary,
    wait_for_events,
)

from tts.base.errors import RequestRefused
from tts.build.spec import load_deployment
from tts.datasets.load import load_problems
from tts.endpoints import retry, triton
from tts.endpoints.base import GenerateCall, ScoreCall
from tts.endpoints.streaming import OutputEnds
from tts.endpoints.triton import TritonConnection
from tts.lab.bench.single_run import prepare
from tts.lab.observer import Observer
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.runs.config import RunConfig
from tts.scheduling import ScheduleName
from tts.serving.server.start import start_server
from tts.serving.server.triton import Triton

pytestmark = pytest.mark.server


LIMIT = 4


@pytest.fixture(scope="session")
def plain(served, tmp_path_factory):
    """A small lockstep run that others are compared with."""
    folder = tmp_path_factory.mktemp("runs") / "plain"
    out, _ = served.done(
        "bench", "demo", "--limit", LIMIT, "--schedule", "lockstep", "--out", folder
    )
    assert "beam-search" in out
    assert str(folder) in out
    return folder


VARIANTS = {
    "weighted-adaptive-vote": {"n": 6, "batch": 3, "threshold": 0.8},
    "beam-search": {"n": 4, "beam_width": 2, "agg_strategy": "prod"},
    "rebase": {"n": 4, "finish": "eos", "num_iterations": 4},
    "mcts": {"n": 4, "width": 2, "parallel": 2},
    "greedy": {},
    "adaptive-vote": {"n": 6, "batch": 2},
    "weighted-best-of-n": {"n": 4, "agg_strategy": "min"},
    "dvts": {"n": 4, "beam_width": 2},
    "particle-filtering": {"n": 4, "ess_threshold": 1},
    "auto": {},
}


def test_every_strategy_grows_the_same_trees_under_every_schedule(in_served, tmp_path):
    """All on one server, so that later runs meet the caches that earlier ones have warmed.

    In the short form there are four that differ in what they ask for, and each meets two schedules.
    """
    limit = amount(2, 3)
    problems = load_problems("demo", limit=limit)
    others = [schedule for schedule in get_args(ScheduleName) if schedule != "decoupled"]
    variants = list(VARIANTS.items())[: amount(4, len(VARIANTS))]
    for number, (name, parameters) in enumerate(variants):
        digests = set()
        first = number % len(others)
        for schedule in ("decoupled", *(others + others)[first : first + amount(1, len(others))]):
            wanted = RunConfig(
                deployment_source="demo",
                dataset="demo",
                limit=limit,
                strategy=name,
                schedule=schedule,
                parameters=parameters,
            )
            plan = prepare(wanted, Observer(), problems=problems)
            folder = tmp_path / f"{name}-{schedule}"
            outcome = carry_out(plan, folder)
            assert outcome["problems"] == limit
            digests.add(outcome["tree_digest"])
        assert len(digests) == 1, name


@pytest.mark.slow
def test_fifty_problems_grow_one_set_of_trees_on_cold_and_warm_caches(tts, tmp_path):
    """Each schedule on a server that has just been started, and on the same one again; then
    decoupled with as many speculative steps as there are empty slots.

    Small searches of many problems: with few beams a schedule must batch many problems together,
    and three iterations are enough for a beam to be kept, expanded and pruned. More of either
    would make these 450 searches longer and show nothing else.
    """
    spec = load_deployment("demo")
    parameters = {"n": 4, "beam_width": 2, "num_iterations": 3}
    problems = load_problems("demo", limit=50)
    digests = {}
    for schedule in get_args(ScheduleName):
        wanted = RunConfig(
            deployment_source="demo",
            dataset="demo",
            limit=50,
            schedule=schedule,
            parameters=parameters,
        )
        with start_server(Triton(spec)):
            for caches in ("cold", "warm"):
                plan = prepare(wanted, Observer(), problems=problems)
                folder = tmp_path / f"{schedule}-{caches}"
                outcome = carry_out(plan, folder)
                assert outcome["problems"] == 50
                digests[schedule, caches] = outcome["tree_digest"]
    wanted = msgspec.structs.replace(
        wanted, schedule="decoupled", speculation="always", in_flight=3
    )
    with start_server(Triton(spec)):
        plan = prepare(wanted, Observer(), problems=problems)
        folder = tmp_path / "speculation"
        outcome = carry_out(plan, folder)
        digests["decoupled", "speculation"] = outcome["tree_digest"]
    assert any(event.get("kind") == "speculative" for event in events(folder))
    assert len(digests) == 9
    assert len(set(digests.values())) == 1, digests


@pytest.mark.slow  # the same on embedded engines: test_embedded.py
def test_a_run_and_its_own_server_are_killed_and_continued_without_doing_anything_twice(
    tts, served, plain, tmp_path
):
    """First the server, which the run starts again, then the run; with speculation all along."""
    folder = tmp_path / "run"
    options = ("--limit", LIMIT, "--speculation", "always", "--in-flight", 2, "--out", folder)
    process = tts.start("bench", "demo", *options)
    wait_for_events(process, folder, "generated", 50)
    (server,) = servers(tts)
    server.kill()
    generated = sum(event["event"] == "generated" for event in events(folder))
    wait_for_events(process, folder, "generated", generated + 100)  # more than were in flight
    wait_for_events(process, folder, "problem_solved", 1)
    process.kill()
    _, err = process.communicate()
    assert "It is started again in 1 s." in err
    assert tts.leftovers() == [], "the server outlived its parent"
    before = events(folder)
    assert any(event.get("kind") == "speculative" for event in before)
    served.done("bench", "--resume", folder)
    assert summary(folder)["tree_digest"] == summary(plain)["tree_digest"]
    assert summary(folder)["sessions"] == 2
    log = events(folder)
    assert log[: len(before)] == before
    solved = [event["problem"] for event in log if event["event"] == "problem_solved"]
    assert len(solved) == len(set(solved)) == LIMIT
    asked = [(e["problem"], *e["node"]) for e in log if e["event"] == "generated"]
    assert len(asked) == len(set(asked)), "something was generated twice"
    assert len(before) < len(log)


def serve(tts):
    """`tts serve demo`, ready."""
    process = tts.start("serve", "demo")
    for line in process.stderr:
        if "Press Ctrl-C" in line:
            return process
    raise AssertionError("it has ended")


@pytest.fixture(scope="module")
def serving(new_home):
    """`tts serve demo` and its home, for the tests that follow one after the other."""
    tts = Tts(new_home())
    process = serve(tts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTS_HOME", str(tts.home))
        yield tts, process
    process.kill()
    process.communicate()
    assert tts.leftovers() == []


def test_a_running_server_is_used_and_left_alone(serving, plain, tmp_path):
    tts, _ = serving
    running = servers(tts)
    assert len(running) == 1
    folder = tmp_path / "run"
    _, err = tts.done("bench", "demo", "--limit", LIMIT, "--out", folder)
    assert "Using the server at" in err
    assert summary(folder)["tree_digest"] == summary(plain)["tree_digest"]
    out, _ = tts.done("solve", "Compute (37 + 58) - 20.", "--n", 4, "--out", tmp_path / "s")
    assert "answer:" in out
    code, _, err = tts.run("serve", "demo")
    assert code == 1
    assert "already served" in err
    assert servers(tts) == running


@pytest.mark.parametrize("victim", ["server", pytest.param("stub", marks=pytest.mark.slow)])
def test_a_run_goes_on_when_its_server_dies_and_is_started_again(
    serving, plain, tmp_path, monkeypatch, victim
):
    """A server is back after some three seconds: where all of it has died, long after a request
    would have been given up.
    """
    if victim == "server":
        # gRPC connects again once a second
        monkeypatch.setattr(triton, "PATIENCE_S", 2.0)
    monkeypatch.setattr(retry, "LONGEST_WAIT_S", 0.2)
    tts, process = serving
    wanted = RunConfig(deployment_source="demo", dataset="demo", limit=LIMIT)
    plan = prepare(wanted, Observer(), problems=load_problems("demo", limit=LIMIT))
    folder = tmp_path / "run"
    (server,) = servers(tts)

    def kill():
        wait_for_events(process, folder, "generated", 50)
        part_of_server(tts, victim).kill()

    killing = threading.Thread(target=kill)
    killing.start()
    assert carry_out(plan, folder)["problems"] == LIMIT
    killing.join()
    assert summary(folder)["tree_digest"] == summary(plain)["tree_digest"]
    assert any("It is started again in " in line for line in iter(process.stderr.readline, ""))
    assert servers(tts) != [server]


def test_the_client_generates_scores_is_refused_and_cancels(in_served, server):
    deployment = load_deployment("demo")
    models = Models.load(deployment)
    context = Context.of(models, Problem("p", "Compute (37 + 58) - 20."))

    async def go(address):
        async with TritonConnection(address) as connection:
            generator = connection.generator(OutputEnds(models.end_id, models.step_stop_words))
            verifier = connection.verifier()
            step = GenerateCall(context.generator_ids(()), 50, 7, 0.8, 1.0, stop_at_step=True)
            first = await generator.generate(step)
            assert first == await generator.generate(step)
            assert models.generator.decode(first).endswith("\n\n")
            whole = await generator.generate(replace(step, stop_at_step=False))
            assert whole[: len(first)] == first
            greedy = replace(step, temperature=0.0)
            assert await generator.generate(greedy) == await generator.generate(
                replace(greedy, seed=8)
            )
            right = models.verifier.first("Compute (37 + 58) - 20.", "## Step 1: 37 + 58 = 95")
            wrong = models.verifier.first("Compute (37 + 58) - 20.", "## Step 1: 37 + 58 = 94")
            assert (await verifier.score(ScoreCall(right))).score > 0.9
            assert (await verifier.score(ScoreCall(wrong))).score < 0.1
            strange = np.asarray([10**6], dtype=np.int32)
            with pytest.raises(RequestRefused, match="vocabulary"):
                await generator.generate(replace(step, input_ids=strange))
            with pytest.raises(RequestRefused, match="vocabulary"):
                await verifier.score(ScoreCall(strange))
            running = [asyncio.ensure_future(generator.generate(step)) for _ in range(20)]
            await asyncio.sleep(0)
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            assert first == await generator.generate(step)
        await asyncio.sleep(0.1)  # gRPC tells this loop of calls that have ended after they have

    asyncio.run(go(server[0].addresses.grpc))
