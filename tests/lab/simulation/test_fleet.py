"""Several simulated servers: placement, the router in front of them, plain generation."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.simulation.scenarios import scenario
from tests.published_shapes import LLAMA_1B, LLAMA_8B_VERIFIER

from tts.build.spec import load_deployment
from tts.cli.options.study import Gpu
from tts.engines.simulated import GPUS, Affine, Gpus, PagedCache, SimulatedEngine, SimulatedRequest
from tts.lab.simulation.fleet import CALL_S, SIMULATED, connected, shapes_of, simulated_deployment
from tts.lab.simulation.scenario import simulate


def placed(generator=((0,),), verifier=((0,),)):
    """A pair with its engines on these GPUs, a tuple for each replica of an engine."""
    deployment = simulated_deployment("h100", 1)
    update = {}
    for role, replicas in (("generator", generator), ("verifier", verifier)):
        engine = deployment.engines()[role]
        placement = engine.placement.model_copy(
            update={"gpus": replicas, "tensor_parallel": len(replicas[0])}
        )
        update[role] = engine.model_copy(update={"tensorrt": placement})
    return deployment.model_copy(update=update)


def outcome(deployment, servers=1, schedule="decoupled", in_flight=4):
    plain = scenario(n=4, deployment=deployment, problems=8, servers=servers, in_flight=in_flight)
    return simulate(plain, schedule)


def test_trees_are_the_same_however_many_servers_and_ranks_there_are():
    pair = simulated_deployment("h100", 1)
    others = [
        outcome(pair, 3),
        outcome(placed(generator=((0, 1),), verifier=((0, 1),))),
        outcome(placed(generator=((0,),), verifier=((1,), (2,)))),
    ]
    assert {each.digest for each in others} == {outcome(pair).digest}


def test_more_servers_are_faster():
    pair = simulated_deployment("a100-80g", 1)
    one, four = (outcome(pair, count, in_flight=8) for count in (1, 4))
    assert four.wall_s < 0.8 * one.wall_s
    assert four.verifier.busy_s < one.verifier.busy_s, "the mean of all"
    assert one.calls_s / CALL_S == pytest.approx(round(one.calls_s / CALL_S))


def test_a_problem_stays_where_its_prefixes_are():
    """Were its steps spread over both servers, most of a prompt would be computed twice."""
    pair = simulated_deployment("h100", 1)
    one, two = (outcome(pair, count, "lockstep").verifier for count in (1, 2))
    assert two.computed_tokens < 1.1 * one.computed_tokens


@given(st.lists(st.frozensets(st.integers(0, 7), min_size=1, max_size=3), min_size=1, max_size=8))
def test_engines_are_simulated_together_only_if_they_share_gpus(devices):
    parts = connected(devices)
    assert sorted(number for part in parts for number in part) == list(range(len(devices)))
    used = [frozenset().union(*(devices[number] for number in part)) for part in parts]
    assert sum(map(len, used)) == len(frozenset().union(*used)), "no GPU in two parts"
    for part in parts:
        reached = {part[0]}
        for _ in part:
            near = frozenset().union(*(devices[number] for number in reached))
            reached |= {number for number in part if devices[number] & near}
        assert reached == set(part), "no part that could be two"


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([(0,), (1,)], (10.0, 10.0)),  # apart
        ([(0,), (0,)], (20.0, 20.0)),  # each has half of the GPU
        ([(0, 1), (1,)], (20.0, 20.0)),  # a rank that waits holds up the others
        ([(0, 1), (1, 2), (2,)], (20.0, 20.0, 20.0)),
        ([(0, 1), (2,), (3, 4)], (10.0, 10.0, 10.0)),
    ],
)
def test_engines_slow_each_other_down_on_the_gpus_that_they_share(devices, expected):
    engines = [SimulatedEngine(Affine(1.0), PagedCache(9, 32), 4, 64) for _ in devices]
    gpus = Gpus(engines, devices=devices)
    ends = {}
    for number, engine in enumerate(engines):
        ids = np.zeros(11, dtype=np.int32)
        request = SimulatedRequest(ids[:1], ids[1:], 10)
        ends[request] = number
        engine.submit(request)
    gpus.run(0.0)
    done = {}
    while (now := gpus.next_s()) is not None:
        for request in gpus.run(now):
            done[ends[request]] = now
    assert tuple(done[number] for number in range(len(devices))) == pytest.approx(expected)


@pytest.mark.parametrize("gpu", get_args(Gpu))
def test_the_pair_that_is_simulated_without_a_word(gpu):
    deployment = simulated_deployment(gpu, 1)
    assert shapes_of(deployment) == {"generator": LLAMA_1B, "verifier": LLAMA_8B_VERIFIER}
    left = 0.9 * GPUS[gpu].memory - 2.47e9 - 15.01e9
    tokens = deployment.verifier.kv_cache.tokens
    assert tokens * LLAMA_8B_VERIFIER.kv_bytes == pytest.approx(left / 2, rel=0.01)
    apart = simulated_deployment(gpu, 2)
    assert [engine.placement.gpus for engine in apart.engines().values()] == [((0,),), ((1,),)]
    left = 0.9 * GPUS[gpu].memory - 15.01e9
    tokens = apart.verifier.kv_cache.tokens
    assert tokens * LLAMA_8B_VERIFIER.kv_bytes == pytest.approx(left, rel=0.01)


def test_a_verifier_with_its_whole_head_reads_it_in_every_step():
    deployment = load_deployment("llama-1b-prm-8b-h100-bf16")
    usual = deployment.model_copy(update={"name": SIMULATED})
    whole, cut = (shapes_of(each)["verifier"] for each in (deployment, usual))
    assert whole.body_bytes - cut.body_bytes == 2 * 128_256 * 4096
    assert replace(whole, body_bytes=cut.body_bytes, weight_bytes=cut.weight_bytes) == cut
