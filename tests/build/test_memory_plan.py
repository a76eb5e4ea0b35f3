"""The memory plan of a deployment: what it does, what it refuses, and properties of any plan."""

import math
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.build.planned_pair import EIGHT_B, ONE_B, PRM, deployment
from tests.bundled import FOR_GPUS

from tts.base.errors import ConfigError
from tts.build.model_config import Experts, ModelConfig, shape_of
from tts.build.spec import PRECISIONS, Deployment, load_deployment
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import check_engine, check_feasible
from tts.build.tensorrt.engine_memory import SERVER_CONTEXT, TRANSFER, ranks_of
from tts.build.tensorrt.gpus import GIB, GPUS, gpus_of, is_orchestrated
from tts.build.tensorrt.memory_plan import (
    CHARACTERS_PER_TOKEN,
    KV_FRACTION,
    SAFETY,
    WRITTEN,
    _side,
    check_pools,
    plan_memory,
)


def test_a_pair_on_one_gpu():
    plan = plan_memory(deployment("h100"))
    (gpu,) = plan.gpus
    assert gpu.total == GPUS["h100"].memory
    assert gpu.fixed + sum(gpu.kv.values()) + gpu.free == gpu.total
    assert SAFETY * gpu.total <= gpu.free < (SAFETY + 0.01) * gpu.total
    assert plan.shared
    assert plan.searched.seconds <= plan.plain.seconds


def test_scarce_memory_goes_where_it_saves_most_time():
    plan = plan_memory(deployment("a100-40g"))
    assert plan.searched.seconds < 0.7 * plan.plain.seconds
    assert plan.searched.verifier > plan.plain.verifier


def test_without_reuse_the_verifier_needs_less_of_the_memory():
    kv = {"kv_cache": {"tokens": 2048, "reuse": False}}
    with_reuse = plan_memory(deployment("a100-40g")).searched
    without = plan_memory(deployment("a100-40g", verifier_fields=kv)).searched
    assert without.verifier < with_reuse.verifier
    assert without.seconds > 2 * with_reuse.seconds


def test_fp8_begins_with_compute_capability_8_9():
    for name, facts in GPUS.items():
        capability = tuple(map(int, contract.compute_capability(name).split(".")))
        runs_fp8 = contract.precision_problem(name, "fp8") is None
        assert (facts.fp8_flops is not None) == runs_fp8 == (capability >= (8, 9))


def test_engines_on_gpus_of_their_own_do_not_divide():
    plan = plan_memory(deployment("h100", {}, {"tensorrt": {"gpus": [[1]]}}))
    assert not plan.shared
    assert [gpu.device for gpu in plan.gpus] == [0, 1]
    for gpu, role in zip(plan.gpus, ("generator", "verifier"), strict=True):
        assert {place.role for place in gpu.ranks} == {role}
        assert gpu.free >= SAFETY * gpu.total
    together = plan_memory(deployment("h100"))
    for role, engine in plan.engines.items():
        assert engine.tokens > together.engines[role].tokens


def test_replicas_and_parallelism():
    plan = plan_memory(
        deployment(
            "h100",
            {"tensorrt": {"gpus": [[0], [1], [2]]}},
            {"tensorrt": {"tensor_parallel": 2, "gpus": [[1, 3]]}},
        )
    )
    placed = [
        (gpu.device, place.role, place.replica, place.rank)
        for gpu in plan.gpus
        for place in gpu.ranks
    ]
    assert placed == [
        (0, "generator", 0, 0),
        (1, "generator", 1, 0),
        (1, "verifier", 0, 0),
        (2, "generator", 2, 0),
        (3, "verifier", 0, 1),
    ]


def test_a_server_that_spawns_its_ranks_takes_memory_of_gpu_0():
    alone = plan_memory(deployment("h100"))
    assert [gpu.server for gpu in alone.gpus] == [0]
    apart = plan_memory(deployment("h100", {}, {"tensorrt": {"gpus": [[1]]}}))
    assert [gpu.server for gpu in apart.gpus] == [SERVER_CONTEXT, 0]
    elsewhere = {"tensorrt": {"gpus": [[1]]}}
    plan = plan_memory(deployment("h100", elsewhere, elsewhere))
    assert [(gpu.device, gpu.server, len(gpu.ranks)) for gpu in plan.gpus] == [
        (0, SERVER_CONTEXT, 0),
        (1, 0, 2),
    ]
    assert plan.gpus[0].fixed == SERVER_CONTEXT


def test_every_rank_has_its_transfer_buffers():
    plan = plan_memory(deployment("h100", {"tensorrt": {"gpus": [[0], [0]]}}))
    (gpu,) = plan.gpus
    assert [place.memory.transfer for place in gpu.ranks] == [TRANSFER] * 3


REFUSED = [
    ("b200", {}, {"precision": "int4_awq"}, ["verifier.precision is 'int4_awq'", "b200"]),
    (
        "rtx4090",
        {"checkpoint": EIGHT_B},
        {},
        ["do not fit GPU 0", "weights 14.96 GiB", "tensorrt.gpus", "smaller precision"],
    ),
    (
        "rtx4090",
        {"max_seq_len": 65_536, "kv_cache": {"tokens": 65_536}},
        {},
        ["left for KV caches on GPU 0", "generator.max_seq_len = 65536", "lower max_seq_len"],
    ),
]


@pytest.mark.parametrize(("gpu", "first", "second", "words"), REFUSED)
def test_refused_plans(gpu, first, second, words):
    with pytest.raises(ConfigError) as caught:
        plan_memory(deployment(gpu, first, second))
    for word in ["'pair'", *words]:
        assert word in str(caught.value)


def test_only_target_tensorrt_is_planned():
    with pytest.raises(ConfigError, match="target is 'openvino'"):
        plan_memory(load_deployment("demo"))


def test_pools_of_the_file_that_do_not_fit():
    check_pools(deployment())
    greedy = deployment("h100", {}, {"kv_cache": {"tokens": 600_000}})
    with pytest.raises(ConfigError, match=r"verifier.kv_cache.tokens = 600000 .* GPU 0") as caught:
        check_pools(greedy)
    assert "tts plan pair --write" in str(caught.value.hint)


@pytest.mark.parametrize("name", FOR_GPUS)
def test_bundled_deployments_hold_what_is_planned(name):
    bundled = load_deployment(name)
    plan = plan_memory(bundled)
    assert bundled.name == name
    for role, engine in plan.engines.items():
        assert engine.tokens == bundled.engines()[role].kv_cache.tokens
        assert engine.full_sequences >= 1
        assert engine.beams >= 16
    check_pools(bundled)
    verifier = bundled.engines().get("verifier")
    if verifier and not verifier.writes:
        assert bundled.generator.max_batch_size > verifier.max_batch_size
        assert bundled.generator.max_num_tokens < verifier.max_num_tokens


gpus = st.sampled_from(sorted(GPUS))
precisions = st.sampled_from(["bf16", "fp16", "fp8", "int8", "int4_awq"])
placements = st.sampled_from(
    [
        {},
        {"gpus": [[1]]},
        {"gpus": [[0], [1]]},
        {"tensor_parallel": 2},
        {"tensor_parallel": 2, "gpus": [[2, 1]]},
        {"pipeline_parallel": 2},
        {"tensor_parallel": 2, "pipeline_parallel": 2},
        {"gpus": [[0], [0]]},
    ]
)


@st.composite
def deployments(draw):
    def engine(checkpoints):
        length = draw(st.integers(64, 20_000))
        block = draw(st.sampled_from([16, 32, 64]))
        return {
            "checkpoint": draw(st.sampled_from(checkpoints)),
            "precision": draw(precisions),
            "max_batch_size": draw(st.integers(1, 2048)),
            "max_num_tokens": draw(st.integers(16, 32_768)),
            "max_seq_len": length,
            "kv_cache": {
                "tokens": length + block,
                "block_size": block,
                "reuse": draw(st.booleans()),
            },
            "tensorrt": draw(placements),
        }

    first = engine([ONE_B, EIGHT_B]) | {"in_flight_requests": draw(st.integers(1, 2048))}
    second = engine([PRM, ONE_B]) | {"in_flight_tokens": 65_536}
    return deployment(draw(gpus), first, second)


@given(deployments())
@settings(max_examples=100)
def test_any_plan_fits_or_is_truly_too_small(wanted):
    assert wanted.tensorrt
    gpu = GPUS[wanted.tensorrt.gpu]
    for spec in wanted.engines().values():
        assume(contract.precision_problem(wanted.tensorrt.gpu, spec.precision) is None)
    if max(least(wanted).values()) > int((1 - SAFETY) * gpu.memory):
        with pytest.raises(ConfigError, match=r"do not fit GPU|left for KV caches on GPU"):
            plan_memory(wanted)
        return
    plan = plan_memory(wanted)
    assert {gpu.device for gpu in plan.gpus if gpu.ranks} == set(gpus_of(wanted))
    assert {gpu.device: gpu.server for gpu in plan.gpus if gpu.server} == (
        {0: SERVER_CONTEXT} if is_orchestrated(wanted) else {}
    )
    for place in plan.gpus:
        assert place.fixed + sum(place.kv.values()) + place.free == gpu.memory
        assert place.free >= SAFETY * gpu.memory
    pools = {role: engine.tokens for role, engine in plan.engines.items()}
    for role, engine in plan.engines.items():
        assert engine.tokens % engine.spec.kv_cache.block_size == 0
        assert engine.tokens >= engine.spec.max_seq_len
        assert engine.full_sequences >= 1
        # nothing is left that one more block could use, unless no beam could fill it
        more = pools | {role: engine.tokens + engine.spec.kv_cache.block_size}
        if engine.tokens < 2 * plan.beams / len(engine.spec.placement.replicas) * (
            engine.spec.max_seq_len
        ):
            assert plan.excess(more)
    assert plan.excess(pools) == {}
    # KV_FRACTION of what the last rank to load finds holds its pool, but for nothing more in use
    spare = [
        KV_FRACTION * (own + place.free - plan.headroom) - own
        for place in plan.gpus
        for rank in place.ranks
        for own in (pools[rank.role] * rank.memory.kv_bytes_per_token + rank.memory.transfer,)
    ]
    assert 0 <= min(spare) < 2
    assert plan.headroom > 0.8 * SAFETY * gpu.memory
    assert math.isfinite(plan.searched.seconds)


def least(wanted):
    """Bytes on each GPU with the smallest pools."""
    used = {0: SERVER_CONTEXT} if is_orchestrated(wanted) else {}
    for spec in wanted.engines().values():
        ranks = ranks_of(shape_of(spec.checkpoint), spec)
        block = spec.kv_cache.block_size
        tokens = -(-spec.max_seq_len // block) * block
        for devices in spec.placement.replicas:
            for rank, device in zip(ranks, devices, strict=True):
                share = rank.fixed + tokens * rank.kv_bytes_per_token
                used[device] = used.get(device, 0) + share
    return used


def test_what_a_prompt_adds_to_each_question_and_to_each_score_is_planned():
    asked = load_deployment("qwen-1.5b-prompted-7b-h100-bf16")
    shape, gpu = shape_of(asked.verifier.checkpoint), GPUS["h100"]
    labels = asked.verifier.model_copy(update={"format": "rlhflow", "prompt": None})
    plain = asked.model_copy(update={"verifier": labels})
    here, there = (_side(deployment, "verifier", shape, gpu) for deployment in (asked, plain))
    before, _, behind = str(asked.verifier.prompt).partition("{steps}")
    assert here.shared - there.shared == len(before) // CHARACTERS_PER_TOKEN > 100
    assert here.new - there.new == len(behind) // CHARACTERS_PER_TOKEN > 0
    assert here.own == there.own, "what asks about a step is no part of the path"


def test_a_critique_is_planned_as_what_a_generator_writes():
    critic = deployment(
        verifier_fields={"format": "critique", "in_flight_tokens": None, "in_flight_requests": 64}
    )
    shape, gpu = shape_of(critic.verifier.checkpoint), GPUS["h100"]
    side = _side(critic, "verifier", shape, gpu)
    assert side.decoded == critic.verifier.critique.max_tokens * WRITTEN
    thrice = critic.verifier.critique.model_copy(update={"samples": 3})
    more = critic.verifier.model_copy(update={"critique": thrice})
    sampled = _side(critic.model_copy(update={"verifier": more}), "verifier", shape, gpu)
    assert sampled.beams == 3 * side.beams


def test_one_engine_in_both_roles_has_one_pool_and_its_weights_once():
    pair = load_deployment("llama-1b-prm-8b-h100-bf16").model_dump(exclude_unset=True)
    pair["verifier"] = {
        "same_as": "generator",
        "format": "graded",
        "prompt": "{question}{steps}{step}",
        "in_flight_tokens": 8192,
    }
    pair["generator"]["kv_cache"]["tokens"] = 524288
    shared = Deployment.model_validate(pair)
    plan = plan_memory(shared)
    (engine,), (gpu,) = plan.engines.values(), plan.gpus
    assert plan.saved == engine.ranks[0].weights > 2.5 * GIB
    assert gpu.kv == {"generator": engine.tokens * engine.ranks[0].kv_bytes_per_token}
    assert engine.tokens == plan.searched.generator + plan.searched.verifier
    check_pools(shared)


def test_on_short_sequences_a_typical_beam_is_as_long_as_one():
    pair = load_deployment("demo-gpu")
    spec = pair.generator
    side = _side(pair, "generator", shape_of(spec.checkpoint), GPUS["rtx4090"])
    assert spec.max_seq_len - 3 <= side.shared + side.own + side.decoded <= spec.max_seq_len


LLAMA = shape_of(Path(ONE_B))


def changed(**fields):
    return ModelConfig(**(vars(LLAMA) | fields))


@pytest.mark.parametrize(
    ("gpu", "fields", "why"),
    [
        ("a100-80g", {"precision": "fp8"}, "fp8 needs compute capability 8.9"),
        ("b200", {"precision": "int8"}, "refuses weight-only int8 and int4"),
        ("h100", {"tensorrt": {"tensor_parallel": 3}}, "the model's 32 attention heads"),
        ("h100", {"tensorrt": {"pipeline_parallel": 17}}, "the model has 16 layers"),
        ("h100", {"tensorrt": {"tensor_parallel": 2, "expert_parallel": 2}}, "has no experts"),
    ],
)
def test_the_plan_and_the_build_refuse_with_one_sentence(gpu, fields, why):
    wanted = deployment(gpu, fields)
    with pytest.raises(ConfigError) as planned:
        plan_memory(wanted)
    with pytest.raises(ConfigError) as built:
        check_engine(wanted, "generator", LLAMA)
    assert str(planned.value) == str(built.value)
    assert why in planned.value.message


@pytest.mark.parametrize(
    ("model", "place", "sentence"),
    [
        (changed(num_heads=32, num_kv_heads=6), {}, "the model's 6 key/value heads"),
        (changed(intermediate_size=8190), {}, "the model's MLP is 8190 wide"),
        (changed(experts=Experts(6, 2, 8192, 0)), {"expert_parallel": 4}, "the model's 6 experts"),
        (changed(experts=Experts(8, 2, 8190, 0)), {"expert_parallel": 1}, "MLP is 8190 wide"),
    ],
)
def test_a_model_that_does_not_divide_is_refused(model, place, sentence):
    wanted = deployment("h100", {"tensorrt": {"tensor_parallel": 4} | place})
    check_feasible(wanted, "generator", changed(num_kv_heads=2, experts=Experts(8, 2, 8192, 0)))
    with pytest.raises(ConfigError, match=sentence):
        check_feasible(wanted, "generator", model)


@given(st.sampled_from(sorted(GPUS)), st.sampled_from(PRECISIONS["tensorrt"]))
def test_a_refused_precision_is_not_among_those_recommended(gpu, precision):
    wanted = deployment(gpu, {"precision": precision})
    if contract.precision_problem(gpu, precision) is None:
        check_feasible(wanted, "generator", LLAMA)
        return
    with pytest.raises(ConfigError) as caught:
        check_feasible(wanted, "generator", LLAMA)
    recommended = str(caught.value.hint).partition("(")[2].partition(")")[0].split(", ")
    assert precision not in recommended
    assert "bf16" in recommended
