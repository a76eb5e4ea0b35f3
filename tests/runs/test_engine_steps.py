"""Engine steps from every source, and those of a run of several sessions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runs.logs import SESSION, log_bytes, started

from tts.base.errors import RunError
from tts.engines.generate_request import EngineLimits
from tts.engines.statistics import Statistics, gauges
from tts.runs.engine_steps import (
    EngineStep,
    StepLog,
    StepSession,
    of_iteration,
    of_metrics,
    prefixes_missed,
    read_step_log,
    steps_file,
    steps_of_run,
)
from tts.runs.events import VERSION, SessionBegan
from tts.runs.folder import EVENTS

METRICS = """
# HELP nv_trt_llm_request_metrics TRT LLM request metrics
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="generator",request_type="waiting",version="1"} 2
nv_trt_llm_request_metrics{model="generator",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="generator",request_type="scheduled",version="1"} 5
nv_trt_llm_request_metrics{model="generator",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="generator",request_type="active",version="1"} 7
nv_trt_llm_runtime_memory_metrics{memory_type="gpu",model="generator",version="1"} 56922112
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="generator",version="1"} 0.25
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="reused",model="generator",version="1"} 31
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="generator",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="generator",version="1"} 10
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free",model="generator",version="1"} 30
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="generator",version="1"} 40
nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="paused_requests",model="generator",version="1"} 0
nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="micro_batch_id",model="generator",version="1"} 0
nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="generation_requests",model="generator",version="1"} 4
nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="total_context_tokens",model="generator",version="1"} 90
nv_trt_llm_general_metrics{general_type="iteration_counter",model="generator",version="1"} 6253
nv_trt_llm_general_metrics{general_type="timestamp",model="generator",version="1"} 1.7e+15
nv_inference_count{model="generator",version="1"} 12
nv_trt_llm_request_metrics{model="prm_engine",request_type="active",version="1"} 3
nv_gpu_power_usage{gpu_uuid="GPU-1"} 71.2
"""  # noqa: E501 - as Triton writes them; names, labels and units: the contract's list of metrics


def test_a_step_of_the_cpu_engine_host_is_on_the_sessions_clock():
    statistics = Statistics(
        4, 1.8e9, monotonic=105.25, seconds=0.5, active=3, scheduled=2, blocks_used=7
    )
    step = of_iteration(statistics, began=100.0, blocks=64)
    assert (step.t, step.seconds, step.iteration) == (5.25, 0.5, 4)
    assert (step.active, step.scheduled, step.blocks, step.blocks_used) == (3, 2, 64, 7)
    assert step.blocks_reused is step.paused_requests is None, "it does not tell"


def test_the_metrics_of_tensorrt_llm_give_each_engines_last_step():
    steps = of_metrics(METRICS, t=2.5)
    assert steps == {
        "generator": EngineStep(
            t=2.5,
            iteration=6253,
            active=7,
            queued=2,
            scheduled=5,
            context_requests=1,
            generation_requests=4,
            paused_requests=0,
            context_tokens=90,
            generated_tokens=4,
            blocks=40,
            blocks_used=10,
            blocks_reused=31,
        ),
        "verifier": EngineStep(t=2.5, active=3),
    }
    assert steps["generator"].tokens == 94
    assert steps["verifier"].tokens is None
    assert steps == of_metrics(METRICS.replace("prm_engine", "prm"), t=2.5), "target openvino's"
    assert of_metrics('nv_inference_count{model="generator",version="1"} 12\n', t=0.0) == {}


def test_the_cpu_engine_hosts_metrics_say_the_same_as_its_log():
    limits = EngineLimits(
        vocab_size=1, max_seq_len=1, max_num_tokens=1, block_size=32, blocks=64, max_active=8
    )
    statistics = Statistics(
        iteration=9,
        active=5,
        scheduled=4,
        context_requests=1,
        generation_requests=3,
        context_tokens=12,
        generated_tokens=3,
        blocks_used=7,
    )
    text = "\n".join(
        f"{metric.name}{{"
        + ",".join(f'{k}="{v}"' for k, v in {"model": "generator", **metric.labels}.items())
        + f"}} {value}"
        for metric, value in gauges(statistics, limits).items()
    )
    sampled = of_metrics(text, t=0.0)["generator"]
    logged = of_iteration(statistics, began=0.0, blocks=64)
    told = [
        name
        for name in EngineStep.__struct_fields__
        if None not in (getattr(sampled, name), getattr(logged, name))
    ]
    assert len(told) >= 9
    for name in set(told) - {"queued"}:  # TensorRT-LLM's counts what is not scheduled
        assert getattr(sampled, name) == getattr(logged, name), name


def write(folder, *steps, session="2026-01-01T00:00:00+00:00"):
    log = StepLog(folder, "generator", StepSession(session=session, sampled=False))
    log.write(steps)
    log.close()


def test_steps_of_a_resumed_run_are_on_one_clock(tmp_path):
    later = SessionBegan(t=0.0, time="2026-01-02T00:00:00+00:00", version=VERSION)
    events = [SESSION, started("a", 10.0), later, started("b", 1.0)]
    (tmp_path / EVENTS).write_bytes(log_bytes(*events))
    write(tmp_path, EngineStep(t=1.0), EngineStep(t=2.0), session=SESSION.time)
    write(tmp_path, EngineStep(t=0.5), session=later.time)
    assert [step.t for step in steps_of_run(tmp_path, "generator")] == [1.0, 2.0, 10.5]
    assert list(steps_of_run(tmp_path, "verifier")) == []


def test_missed_prefixes_are_those_of_the_runs_own_time(tmp_path):
    for session, counts in (("one", (7, 7, 9)), ("two", (12, 13, 0, 4)), ("three", (None, None))):
        steps = (EngineStep(t=1.0, prefixes_missed=count) for count in counts)
        write(tmp_path, *steps, session=session)
    assert prefixes_missed(tmp_path, "generator") == 2 + 1 + 4
    assert prefixes_missed(tmp_path, "verifier") == 0


NUMBERS = st.none() | st.integers(0, 10**6)
STEPS = st.builds(
    EngineStep,
    t=st.floats(0, 1e6),
    seconds=st.none() | st.floats(0, 1e3),
    **{name: NUMBERS for name in EngineStep.__struct_fields__ if name not in ("t", "seconds")},
)


@given(steps=st.lists(STEPS, max_size=4))
def test_steps_come_back_as_written(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("run")
    write(folder, *steps)
    session, *rest = read_step_log(folder, "generator")
    assert (session.session, session.sampled) == (SESSION.time, False)
    assert session.columns == EngineStep.__struct_fields__
    assert rest == steps


def test_a_session_appends_to_those_before_and_a_half_line_is_cut(tmp_path):
    one, other = EngineStep(t=1.0), EngineStep(t=0.5, active=3)
    write(tmp_path, one, EngineStep(t=2.0))
    file = steps_file(tmp_path, "generator")
    file.write_bytes(file.read_bytes()[:-4])  # the run was killed
    assert list(read_step_log(tmp_path, "generator"))[1:] == [one]
    write(tmp_path, other, session="later")
    _, *lines = read_step_log(tmp_path, "generator")
    assert lines == [one, StepSession(session="later", sampled=False), other]


@pytest.mark.parametrize("line", ["[]", "{}", "x", '["1"]'])
def test_a_damaged_line_is_named(tmp_path, line):
    write(tmp_path)
    with steps_file(tmp_path, "generator").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(RunError, match=r"generator\.jsonl, line 2 is not a step"):
        list(read_step_log(tmp_path, "generator"))
