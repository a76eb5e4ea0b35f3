"""The token-length histograms: what Prometheus is shown."""

from hypothesis import given
from hypothesis import strategies as st

from tts.engines.statistics import TOKEN_BUCKETS, TokenLengths


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
