"""The real driver on simulated engines and virtual time: same trees, and checks of the model."""

import asyncio
import gc
import json
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from tests.lab.simulation.scenarios import scenario
from typer.testing import CliRunner

from tts.base.choices import Sharing
from tts.base.errors import DatasetError
from tts.cli import app
from tts.cli.options.study import Gpu
from tts.driver import Driver
from tts.endpoints.base import GenerateCall, ScoreCall, VerifierResult
from tts.endpoints.streaming import NewTokens
from tts.engines.simulated import GPUS
from tts.lab.simulation import fleet
from tts.lab.simulation.scenario import digest_of, problems, run_virtual, search_of, simulate
from tts.lab.simulation.workload import (
    QUESTION_TOKENS,
    TraceChain,
    from_traces,
    read_chains,
    simulated_models,
    typical,
)
from tts.prompting import Context
from tts.scheduling import Policy, ScheduleName
from tts.search import Stop
from tts.strategies.catalog import STRATEGIES

SCHEDULES = get_args(ScheduleName)


def with_memory(plain, tokens):
    """The same scenario with so small a KV cache for each engine."""
    engines = plain.deployment.engines()
    caches = {
        role: each.kv_cache.model_copy(update={"tokens": tokens}) for role, each in engines.items()
    }
    changed = {
        role: engines[role].model_copy(update={"kv_cache": caches[role]}) for role in engines
    }
    return replace(plain, deployment=plain.deployment.model_copy(update=changed))


def without_time(plain):
    """The digest of a run on engines that answer at once, on an ordinary event loop."""
    trees = {}

    class AtOnce:
        async def generate(self, call):
            return plain.workload.generate(call)

        async def stream(self, call):
            ids = plain.workload.generate(call)
            yield NewTokens(ids, fleet._log_probs(call.seed, len(ids)), True)

        async def score(self, call):
            return VerifierResult(plain.workload.score(call.input_ids))

    models, to_solve = problems(plain)

    async def solve():
        policy = Policy("decoupled", 64, 10**6)
        async with Driver(models, AtOnce(), AtOnce(), policy, record=lambda event: None) as driver:
            for problem in to_solve:
                result = await driver.submit(problem, partial(search_of, plain, problem))
                trees[problem.id] = result.tree.digest()

    asyncio.run(solve())
    return digest_of(trees)


@pytest.mark.parametrize(
    ("strategy", "critiques"),
    [*((name, None) for name in STRATEGIES), ("beam-search", 50), ("mcts", 50)],
)
def test_every_schedule_gives_the_trees_of_a_run_without_time(strategy, critiques):
    plain = scenario(strategy, n=4, problems=2, critiques=critiques)
    expected = without_time(plain)
    assert {simulate(plain, schedule).digest for schedule in SCHEDULES} == {expected}


@pytest.mark.slow
def test_placement_memory_and_costs_do_not_change_the_trees():
    plain = scenario(n=16, problems=3)
    others = [
        scenario(n=16, problems=3, gpus=1),
        scenario(n=16, problems=3, gpus=1, sharing="overlapped", gpu="a100-80g"),
        with_memory(plain, 8192),
    ]
    expected = simulate(plain, "decoupled").digest
    assert {simulate(other, "decoupled").digest for other in others} == {expected}
    assert simulate(scenario(n=16, problems=3, seed=1), "decoupled").digest != expected


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_simulation_repeats_itself_exactly(schedule):
    first, second = (simulate(scenario(problems=4), schedule) for _ in range(2))
    assert replace(first, real_s=0) == replace(second, real_s=0)


def test_guesses_are_counted_and_those_that_were_of_use():
    always, off = (
        simulate(scenario(speculation=each, problems=4), "decoupled") for each in ("always", "off")
    )
    assert 0 < always.used < always.speculated
    assert always.hit_rate == always.used / always.speculated
    assert (off.speculated, off.used, off.hit_rate) == (0, 0, None)


def test_the_garbage_collector_is_as_it_was_after_a_simulation():
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            simulate(scenario("greedy", problems=1), "lockstep")
            assert gc.isenabled() == enabled
        finally:
            gc.enable()


@pytest.mark.parametrize(("gpus", "cancel_s"), [(1, 0.0), (2, 5e-3), (1, 0.1)])
def test_what_is_cancelled_on_the_engine_leaves_nothing_running(monkeypatch, cancel_s, gpus):
    expected = simulate(scenario(problems=3), "lockstep").digest
    monkeypatch.setattr(fleet, "CANCEL_S", cancel_s)
    assert len(simulate(scenario(gpus=gpus, problems=3), "decoupled").latencies_s) == 3
    written = simulate(scenario(gpus=gpus, problems=3, critiques=100), "decoupled")
    assert len(written.latencies_s) == 3
    assert written.verifier.wasted_tokens > 0, "critiques end in the middle"
    assert written.digest == expected, "a verifier that writes the same scores"


def test_a_critique_takes_a_step_of_the_engine_for_each_of_its_tokens():
    plain = scenario(critiques=100)
    prompt = np.arange(300, dtype=np.int32)

    async def score():
        servers = fleet.fleet_of(plain.deployment, 1, "time-sliced")
        spec = plain.deployment.verifier_model
        engines = servers.pairs[0]["verifier"]
        verifier = fleet.SimulatedVerifier(servers.server, engines, plain.workload, spec)
        results = await asyncio.gather(*(verifier.score(ScoreCall(prompt)) for _ in range(2)))
        return results, engines[0].totals, engines[0].cache.unavailable

    (first, second), totals, unavailable = run_virtual(score())
    assert first == second, "its length is the prompt's"
    assert totals.steps == first.tokens + 2, "the end is a token, too; one came a step later"
    assert unavailable == 0
    assert sum(plain.workload.critiques) / 1000 == pytest.approx(100, rel=0.02)


def test_a_placement_is_never_faster_than_more_of_the_machine():
    plain = scenario(gpus=1, speculation="off")  # guesses sent at other times change the work
    placements = [plain, replace(plain, sharing="overlapped"), scenario(speculation="off")]
    walls = [simulate(placement, "decoupled").wall_s for placement in placements]
    assert walls == sorted(walls, reverse=True)


@pytest.mark.parametrize("n", [4, 16])
def test_synchronous_search_waits_for_a_fifth_to_a_half_of_its_time(n):
    """As SpecScale measured on an A100: 20 to 55%."""
    outcome = simulate(scenario(gpu="a100-80g", n=n, problems=16, in_flight=1), "lockstep")
    assert 0.20 <= outcome.waiting <= 0.55


@pytest.mark.slow
def test_what_a_larger_cache_gains_fades_with_its_size():
    plain = scenario(n=16, problems=6, in_flight=6)
    wall = [
        simulate(with_memory(plain, tokens), "decoupled").wall_s
        for tokens in (4_096, 16_384, 65_536, 262_144, 1_048_576)
    ]
    gains = [smaller / larger for smaller, larger in pairwise(wall)]
    assert all(later < gain + 0.02 for gain, later in pairwise(gains)), gains
    assert gains[0] > 1.5
    assert gains[-1] == pytest.approx(1, abs=0.02)


def test_virtual_time_jumps_and_never_runs_backwards():
    async def main():
        loop = asyncio.get_running_loop()
        seen = []

        async def after(seconds):
            await asyncio.sleep(seconds)
            seen.append((seconds, loop.time()))

        await asyncio.gather(*(after(seconds) for seconds in (3600.0, 5.0, 1e6, 5.0)))
        return seen

    seen = run_virtual(main())
    assert [seconds for seconds, _ in seen] == [5, 5, 3600, 1e6]
    assert all(now == pytest.approx(seconds) for seconds, now in seen)


def test_waiting_for_what_never_comes_is_an_error():
    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="nothing will ever happen"):
        run_virtual(main())


def test_simulated_text_is_what_its_ids_say():
    plain = scenario()
    models = simulated_models(plain.deployment)
    prompt = Context.of(models, problems(plain)[1][0]).generator_ids(())
    assert len(prompt) == QUESTION_TOKENS
    for seed in range(200):
        call = GenerateCall(prompt, 500, seed, 0.8, 1.0, stop_at_step=False)
        ids = plain.workload.generate(call)
        truncated = len(ids) >= 500
        thoughts = models.thoughts(ids, truncated=truncated, whole=True)
        assert [t for thought in thoughts for t in thought.token_ids] == ids
        assert thoughts[-1].stop is (Stop.LENGTH if truncated else Stop.END)
        assert all(thought.text.strip() for thought in thoughts[:-1])


def test_the_built_in_workload_is_that_of_a_small_model_on_math():
    workload = typical()
    assert 60 <= sum(workload.lengths) / len(workload.lengths) <= 100
    assert workload.lengths[-1] > 500
    near = []
    models, made_up = problems(scenario(problems=300))
    for number, problem in enumerate(made_up):
        context, scores = Context.of(models, problem), []
        for depth in range(6):
            prompt = context.generator_ids((0,) * depth)
            call = GenerateCall(prompt, 500, 6 * number + depth, 0.8, 1.0, stop_at_step=True)
            ids = workload.generate(call)
            (thought,) = context.models.thoughts(ids, truncated=False, whole=False)
            context.add((0,) * (depth + 1), thought)
            scores.append(workload.score(context.verifier_ids((0,) * (depth + 1))))
        near += [abs(after - before) <= 0.01 for before, after in pairwise(scores)]
    assert 0.45 <= sum(near) / len(near) <= 0.65, "neighbouring steps within 1%"


def traces(tmp_path, *rows):
    file = tmp_path / "traces.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def trace(text, scores):
    return {"text": text, "sep": "|", "step_scores": scores}


def test_statistics_of_traces_that_have_a_score_for_every_step(tmp_path):
    first = trace("a" * 70 + "|" + "b" * 35, [0.9, 0.8])
    file = traces(
        tmp_path,
        first,
        trace("a" * 7 + "|" + "b" * 14, [0.2, 0.1]),
        trace("c" * 350, [0.5]),
        trace("c|d", [0.5]),
        trace("c|d", [1, -1]),
        trace("c", None),
    )
    workload = from_traces(file)
    assert workload.lengths == (2, 4, 10, 20, 100)
    assert workload.scores == (0.1, 0.2, 0.5, 0.8, 0.9)
    assert workload.ends == (pytest.approx(1 / 3), 1.0)
    assert workload.correlation == pytest.approx(1.0)
    simulate(scenario(workload=workload, problems=2), "decoupled")
    assert read_chains(traces(tmp_path, first)) == [TraceChain((20, 10), (0.9, 0.8))]


@pytest.mark.parametrize("row", ["text", [], trace(1, [1]), trace("c|d", [0.5])])
def test_bad_traces_are_refused(tmp_path, row):
    with pytest.raises(DatasetError, match=r"traces\.jsonl"):
        from_traces(traces(tmp_path, row))


def test_the_command_names_what_there_is():
    assert set(get_args(Gpu)) <= set(GPUS)
    assert len(get_args(Sharing)) == 2


def tts(*arguments):
    return CliRunner().invoke(app, ["simulate", "--limit", "2", "--n", "4", *arguments])


def test_the_command_prints_schedules_side_by_side():
    done = tts("--schedule", "lockstep", "--schedule", "decoupled", "--gpus", "1")
    assert done.exit_code == 0
    table = done.stdout.splitlines()
    assert table[0].startswith("simulated: Llama-3.2-1B and an 8B verifier on one H100")
    rows = {line.split()[0]: line.split() for line in table if line.endswith(("yes", "NO"))}
    assert list(rows) == ["lockstep", "decoupled"]
    assert rows["lockstep"][2] == "1.00x"
    assert "virtual seconds per real second" in done.stdout


def test_the_command_simulates_a_verifier_that_writes():
    done = tts("--schedule", "decoupled", "--critique-tokens", "20")
    assert done.exit_code == 0, done.output
    assert "8B verifier that writes" in done.stdout
    refused = tts("llama-1b-prm-8b-h100-bf16", "--critique-tokens", "20").exception
    assert "its format is rlhflow" in str(refused)


def test_the_command_refuses_what_does_not_fit_together():
    assert "--gpus 1 only" in tts("--sharing", "overlapped").stderr
    assert "multiple of beam_width" in str(tts("--set", "beam_width=3").exception)
