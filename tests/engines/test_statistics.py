"""What Prometheus is shown of an engine: the last iteration, and histograms of lengths."""

from hypothesis import given
from hypothesis import strategies as st

from tts.engines.generate_request import EngineLimits
from tts.engines.statistics import TOKEN_BUCKETS, Statistics, TokenLengths, gauges

LIMITS = EngineLimits(100, 64, 32, block_size=16, blocks=40, max_active=8)


@given(st.lists(st.integers(0, 2000)))
def test_a_histogram_counts_what_lies_within_each_bound(lengths):
    histogram = TokenLengths("nv_llm_input_token_len", "total_input_tokens")
    for length in lengths:
        histogram.observe(length)
    counters = {(metric.name, metric.le): n for metric, n in histogram.counters().items()}
    name = "nv_llm_input_token_len"
    for bound in TOKEN_BUCKETS:
        assert counters.pop((f"{name}_bucket", str(bound))) == sum(n <= bound for n in lengths)
    assert counters == {
        (f"{name}_bucket", "+Inf"): len(lengths),
        (f"{name}_count", ""): len(lengths),
        (f"{name}_sum", ""): sum(lengths),
    }
    kinds = [metric.labels["response_metric_type"] for metric in histogram.counters()]
    assert set(kinds) == {"total_input_tokens"}


def test_the_gauges_say_what_the_last_iteration_did():
    last = Statistics(
        iteration=9,
        timestamp=2.5,
        active=7,
        scheduled=5,
        context_requests=2,
        generation_requests=3,
        context_tokens=60,
        blocks_used=10,
    )
    shown = {
        (each.name, *each.labels.values()): value for each, value in gauges(last, LIMITS).items()
    }
    families = {
        "request": {"active": 7, "max": 8, "scheduled": 5, "context": 2, "waiting": 2},
        "kv_cache_block": {"max": 40, "free": 30, "used": 10, "tokens_per": 16, "fraction": 0.25},
        "inflight_batcher": {
            "total_context_tokens": 60,
            "generation_requests": 3,
            "paused_requests": 0,
        },
        "general": {"timestamp": 2_500_000, "iteration_counter": 9},
    }
    assert shown == {
        (f"nv_trt_llm_{family}_metrics", kind): value
        for family, kinds in families.items()
        for kind, value in kinds.items()
    }
    ended = gauges(Statistics(active=1, scheduled=2), LIMITS)
    assert min(ended.values()) == 0, "requests that end count as scheduled"
