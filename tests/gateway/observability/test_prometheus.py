import re

from hypothesis import given
from hypothesis import strategies as st

from tts.gateway.observability import Observer
from tts.gateway.observability.prometheus import (
    MOST_SERIES,
    OTHER,
    Counter,
    Gauge,
    Histogram,
    exposition,
)

SAMPLE = re.compile(r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (\S+)')


def samples(metrics):
    """The exposition, read back; every line must be one that Prometheus takes."""
    found = {}
    for line in exposition(metrics).splitlines():
        if not line.startswith("#"):
            name, braces, value = SAMPLE.fullmatch(line).groups()
            labels = re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', braces or "")
            found[name, tuple(labels)] = float(value)
    return found


@given(st.lists(st.floats(0, 100) | st.integers(0, 100)), st.sampled_from([(1, 2, 50), (0.5,), ()]))
def test_a_histogram_counts_what_is_at_most_each_bound(values, bounds):
    histogram = Histogram("h", "", bounds)
    for value in values:
        histogram.observe(value)
    found = samples([histogram])
    if values:
        for bound in bounds:
            expected = sum(value <= bound for value in values)
            written = repr(float(bound)) if bound % 1 else str(bound)
            assert found["h_bucket", (("le", written),)] == expected
        assert found["h_bucket", (("le", "+Inf"),)] == found["h_count", ()] == len(values)
        assert abs(found["h_sum", ()] - sum(values)) <= 1e-9 * (1 + sum(values))


@given(st.text(max_size=20))
def test_any_text_can_be_a_label(text):
    counter = Counter("c", "", ("label",))
    counter.add(2, text)
    lines = exposition([counter]).split("\n")
    assert len(lines) == 4
    value = re.fullmatch(r'c\{label="(.*)"\} 2', lines[2], re.DOTALL)[1]
    assert re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value) == text


def test_too_many_series_are_counted_together_and_none_is_lost():
    counter, histogram = Counter("c", "", ("a", "b")), Histogram("h", "", (1,), ("a",))
    gauge = Gauge("g", "", lambda: {(str(i),): i for i in range(MOST_SERIES * 2)}, ("a",))
    for number in range(MOST_SERIES + 50):
        counter.add(1, "x", str(number))
        counter.add(1, "x", "0")
        histogram.observe(1, str(number))
    found = samples([counter, histogram, gauge])
    assert found["c", (("a", OTHER), ("b", OTHER))] == 50
    assert found["c", (("a", "x"), ("b", "0"))] == MOST_SERIES + 51
    assert found["h_count", (("a", OTHER),)] == 50
    assert sum(name == "c" for name, _ in found) == MOST_SERIES + 1
    assert sum(name == "g" for name, _ in found) == MOST_SERIES


def test_the_gateways_metrics_have_help_types_and_good_names():
    observer = Observer()
    observer.end(observer.begin("/v1/completions"))
    text = observer.metrics.exposition()
    for name, (kind, _) in observer.metrics.names.items():
        assert name.startswith("tts_gateway_")
        assert f"# TYPE {name} {kind}\n" in text
        assert re.search(f"# HELP {name} .+\\.\n", text)
        assert (kind == "counter") == name.endswith("_total")
