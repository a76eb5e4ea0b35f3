"""The log of a start against the memory plan: agreement is seen as such, every excess is named."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.bundled import BUNDLED, FOR_GPUS
from tests.checks.first_run.planned_log import MIB, planned_log

from tts.build.tensorrt.engine_memory import TRANSFER
from tts.build.tensorrt.gpus import GIB
from tts.build.tensorrt.memory_plan import plan_memory
from tts.checks.first_run.compare import compare_log, compare_memory
from tts.checks.first_run.steps import AS_EXPECTED, DIFFERS, NOT_HERE, FirstRun
from tts.checks.observation import Observation
from tts.serving.server.triton_log import read_start_log

PLANS = {name: plan_memory(BUNDLED[name]) for name in FOR_GPUS}
names = st.sampled_from(FOR_GPUS)
roles = st.sampled_from(["generator", "verifier"])


def compared(name, lines):
    outcomes = compare_log(BUNDLED[name], PLANS[name], read_start_log(lines))
    return {outcome.what: outcome for outcome in outcomes}


@given(names, st.randoms())
def test_a_start_as_planned_is_as_expected_in_whatever_order_the_lines_come(name, order):
    lines = planned_log(BUNDLED[name], PLANS[name])
    order.shuffle(lines)
    outcomes = compared(name, ["noise", *lines, "more noise"])
    assert {outcome.state for outcome in outcomes.values()} == {"ok"}, outcomes


@given(names, roles, st.data())
def test_a_pool_that_was_cut_short_is_told(name, role, data):
    assume(role in BUNDLED[name].engines())
    cache = BUNDLED[name].engines()[role].kv_cache
    cut = data.draw(st.integers(1, cache.blocks // 4))
    outcomes = compared(name, planned_log(BUNDLED[name], PLANS[name], cut={role: cut}))
    pools = outcomes["KV pools"]
    others = {spec.kv_cache.tokens for spec in BUNDLED[name].engines().values()} - {cache.tokens}
    left = cache.tokens - cut * cache.block_size
    assert pools.state == ("note" if left in others else "wrong")
    assert f"{left:,} tokens" in pools.found
    assert f"{cache.tokens:,} tokens ({role})" in pools.expected
    assert outcomes["longest sequences"].state == "ok"


@given(names, st.integers(TRANSFER // 3 + 1, 2**30))
def test_transfer_buffers_of_another_size_are_told(name, size):
    lines = planned_log(BUNDLED[name], PLANS[name], transfer=size)
    outcome = compared(name, lines)["KV transfer buffers"]
    assert outcome.state == "wrong"
    assert "TRTLLM_KVCACHE_TRANSFER_BUFFER_SIZE=1MB did not reach" in outcome.advice


H100 = "llama-1b-prm-8b-h100-bf16"


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("activations", "MiB for execution context", "Allocated 9000.00 MiB for execution context"),
        ("decoder and runtime buffers", "for decoder", "Allocated 9.00 GB GPU memory for decoder."),
        ("weights", "Loaded engine size", "Loaded engine size: 40000 MiB"),
    ],
)
def test_a_size_beyond_its_estimate_is_told(what, old, new):
    lines = planned_log(BUNDLED[H100], PLANS[H100])
    at = next(number for number, line in enumerate(lines) if old in line)
    tail = " memory." if what == "activations" else ""
    lines[at] = f"[TensorRT-LLM][INFO] {new}{tail}"
    outcomes = compared(H100, lines)
    assert [seen.what for seen in outcomes.values() if seen.state == "wrong"] == [what]
    assert "estimate is too small" in outcomes[what].advice


def test_of_lines_of_some_ranks_only_the_largest_are_compared():
    lines = planned_log(BUNDLED[H100], PLANS[H100])
    first = lines[: len(lines) // 2]  # those of the generator
    outcomes = compared(H100, first)
    assert outcomes["activations"].state == "ok"
    assert "the largest rank" in outcomes["activations"].expected
    assert outcomes["KV pools"].state == "note"
    assert "no line for the verifier" in outcomes["KV pools"].advice


SHORTENED = (
    "[TensorRT-LLM][WARNING] maxAttentionWindow and maxSequenceLen are too large for at least one "
    "sequence to fit in kvCache. they are reduced to 1024"
)


@pytest.mark.parametrize(
    ("more", "cut", "what", "advice"),
    [
        ([SHORTENED], {}, "longest sequences", "reduced to 1,024 tokens"),
        ([], {"verifier": -1}, "KV pools", "another configuration"),
    ],
)
def test_a_shortened_sequence_and_a_larger_pool_are_told(more, cut, what, advice):
    outcome = compared(H100, [*planned_log(BUNDLED[H100], PLANS[H100], cut=cut), *more])[what]
    assert outcome.state == "wrong"
    assert advice in outcome.advice


@given(names)
def test_an_empty_log_is_no_agreement(name):
    assert {outcome.state for outcome in compared(name, []).values()} == {"note"}


@given(names, st.integers(0, 2 * GIB), st.floats(0, 1))
def test_memory_in_use_is_what_the_server_added(name, before, share):
    deployment, plan = BUNDLED[name], PLANS[name]
    planned = {gpu.device: gpu.total - gpu.free for gpu in plan.gpus}
    earlier = dict.fromkeys(planned, before)
    used = {device: before + int(share * size) for device, size in planned.items()}
    outcomes = compare_memory(deployment, plan, earlier, used)
    assert [outcome.state for outcome in outcomes] == ["ok"] * len(planned)
    more = {device: before + size + plan.headroom for device, size in planned.items()}
    states = {seen.state for seen in compare_memory(deployment, plan, earlier, more)}
    assert states <= {"note", "ok"}
    much = {device: size + MIB * 200 for device, size in more.items()}
    outcomes = compare_memory(deployment, plan, earlier, much)
    assert {outcome.state for outcome in outcomes} == {"wrong"}


def test_a_gpu_that_nvidia_smi_does_not_list_cannot_be_compared():
    (outcome,) = compare_memory(BUNDLED[H100], PLANS[H100], {}, {})
    assert outcome.state == "not here"


@given(st.lists(st.sampled_from(["ok", "note", "wrong", "not here"])))
def test_the_exit_code_is_that_of_the_worst(states):
    run = FirstRun(BUNDLED[H100], [Observation("x", state, "") for state in states])
    code = run.exit_code
    assert (code == DIFFERS) == ("wrong" in states)
    assert (code == AS_EXPECTED) == (not {"wrong", "not here"} & set(states))
    assert code in (AS_EXPECTED, DIFFERS, NOT_HERE)
