import re

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.registry import Collector

from tts.gateway.observability import Recorder
from tts.gateway.observability.metrics import (
    MOST_SERIES,
    OTHER,
    Counter,
    Gauge,
    Histogram,
)

SAMPLE = re.compile(r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (\S+)')


class Scraped(Collector):
    def __init__(self, metrics):
        self.metrics = metrics

    def collect(self):
        return [metric.family() for metric in self.metrics]


def exposition(metrics):
    return generate_latest(Scraped(metrics)).decode()


def samples(metrics):
    """The exposition, read back; every line must be one that Prometheus takes."""
    found = {}
    for line in exposition(metrics).split("\n")[:-1]:
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
    value = re.fullmatch(r'c_total\{label="(.*)"\} 2\.0', lines[2], re.DOTALL)[1]
    assert re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value) == text


def test_too_many_series_are_counted_together_and_none_is_lost():
    counter, histogram = Counter("c", "", ("a", "b")), Histogram("h", "", (1,), ("a",))
    gauge = Gauge("g", "", lambda: {(str(i),): i for i in range(MOST_SERIES * 2)}, ("a",))
    for number in range(MOST_SERIES + 50):
        counter.add(1, "x", str(number))
        counter.add(1, "x", "0")
        histogram.observe(1, str(number))
    found = samples([counter, histogram, gauge])
    assert found["c_total", (("a", OTHER), ("b", OTHER))] == 50
    assert found["c_total", (("a", "x"), ("b", "0"))] == MOST_SERIES + 51
    assert found["h_count", (("a", OTHER),)] == 50
    assert sum(name == "c_total" for name, _ in found) == MOST_SERIES + 1
    assert sum(name == "g" for name, _ in found) == MOST_SERIES


def test_the_gateways_metrics_have_help_types_and_good_names():
    recorder = Recorder()
    recorder.end(recorder.begin("/v1/completions"))
    text = recorder.metrics.exposition()
    for name, (kind, _) in recorder.metrics.names.items():
        assert name.startswith("tts_gateway_")
        assert f"# TYPE {name} {kind}\n" in text
        assert re.search(f"# HELP {name} .+\\.\n", text)
        assert (kind == "counter") == name.endswith("_total")


def test_every_series_and_bucket_has_its_name():
    """Dashboards and alerts name them: no bound may be written otherwise."""
    recorder = Recorder()
    record = recorder.begin("/v1/completions")
    record.t1 = record.t2 = record.t3 = record.t5 = record.t6 = record.t0 + 0.3
    record.model, record.stream, record.prompt_tokens, record.answer_tokens = "demo", True, 20, 3
    record.outcome, record.status = "ok", 200
    recorder.end(record)
    lines = recorder.metrics.exposition().splitlines()
    names = {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}
    assert 'tts_gateway_tokens_total{kind="prompt",model="demo"}' in names
    bounds = {re.search('le="(.*?)"', name)[1] for name in names if "_bucket" in name}
    shown = """0.0001 0.00025 0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 30
    60 120 300 600 16 64 256 1024 4096 16384 65536 262144 1048576 +Inf"""
    assert bounds == set(shown.split())
    assert not any("_created" in name for name in names)
