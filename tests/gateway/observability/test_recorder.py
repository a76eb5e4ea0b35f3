"""What is counted of requests, by names that dashboards know, and what is kept of them."""

import json
import re
import time
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from tts.gateway import observability
from tts.gateway.observability.ledger import SEES_CHANGES_S, Ledger
from tts.gateway.observability.record import read_requests
from tts.gateway.observability.recorder import Recorder
from tts.gateway.safety.keys import Keyring, KeyStore
from tts.gateway.safety.limits import KeyLimits

FILE = Path(observability.__file__).with_name("grafana_dashboard.json")
DASHBOARD = json.loads(FILE.read_text(encoding="utf-8"))
QUERIES = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
    *(v["query"]["query"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query"),
]


def answered(record):
    """Fill in a record as a streamed answer does."""
    for i, name in enumerate(("t1", "t2", "t3", "t4", "t5", "t6")):
        setattr(record, name, record.t0 + (i + 1) / 10)
    record.model, record.outcome, record.status, record.stream = "demo", "ok", 200, True
    record.prompt_tokens, record.answer_tokens = 7, 5
    record.prompt, record.answer = "What?", "That."
    return record


def counted():
    """The metrics of a gateway that has answered one request and works at two others."""
    recorder = Recorder()
    record = answered(recorder.begin("/v1/completions"))
    for _ in range(2):  # further calls change nothing
        recorder.end(record)
    first, second = recorder.begin("/a"), recorder.begin("/a")
    first.model = second.model = "demo"
    first.t1 = second.t1 = second.t2 = first.t0
    return recorder.metrics


METRICS = counted()
TEXT = generate_latest(METRICS.registry).decode()
SERIES = {
    sample.name: set(sample.labels)
    for family in METRICS.registry.collect()
    for sample in family.samples
}


@pytest.mark.parametrize(
    "line",
    [
        'requests_in_flight{model="demo"} 2.0',
        "requests_queued 1.0",
        'requests_total{endpoint="/v1/completions",model="demo",outcome="ok",status="200"} 1.0',
        'tokens_total{kind="answer",model="demo"} 5.0',
        'tokens_total{kind="prompt",model="demo"} 7.0',
        'request_tokens_sum{model="demo"} 12.0',
        'request_seconds_bucket{le="0.5",model="demo",outcome="ok"} 0.0',
        'request_seconds_bucket{le="1.0",model="demo",outcome="ok"} 1.0',
        'time_to_first_byte_seconds_bucket{le="0.25",model="demo"} 0.0',
        'time_to_first_byte_seconds_bucket{le="1.0",model="demo"} 1.0',
        'own_latency_seconds_bucket{le="0.25",model="demo"} 0.0',
        'own_latency_seconds_bucket{le="1.0",model="demo"} 1.0',
        'time_per_output_token_seconds_bucket{le="0.05",model="demo"} 1.0',
        *(
            f'stage_seconds_count{{stage="{stage}"}} 1.0'
            for stage in ("admission", "queue", "engine", "filters", "encoding", "sending")
        ),
    ],
)
def test_a_request_is_in_flight_until_it_ends_and_then_it_is_counted_once(line):
    assert f"tts_gateway_{line}\n" in TEXT


def test_the_gateways_metrics_have_help_types_and_good_names():
    for name, kind in re.findall(r"# TYPE (\S+) (\S+)", TEXT):
        assert name.startswith("tts_gateway_")
        assert re.search(f"# HELP {name} .+\\.\n", TEXT)
        assert (kind == "counter") == name.endswith("_total")
    assert "_created" not in TEXT


def test_every_bucket_has_its_name():
    """Dashboards and alerts name them: no bound may be written otherwise."""
    shown = """0.0001 0.00025 0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1.0 2.5 5.0
    10.0 30.0 60.0 120.0 300.0 600.0 16.0 64.0 256.0 1024.0 4096.0 16384.0 65536.0 262144.0
    1.048576e+06 +Inf"""
    assert set(re.findall('le="(.*?)"', TEXT)) == set(shown.split())


def test_own_latency_is_what_the_engines_did_not_take():
    record = answered(Recorder().begin("/a"))
    assert record.own_latency_s() == pytest.approx(0.2 + 0.2)
    assert record.time_per_token_s() == pytest.approx(0.1 / 4)
    record.answer_tokens = 2
    assert record.time_per_token_s() == pytest.approx(0.1)
    record.t3, record.answer_tokens = None, 1
    assert record.own_latency_s() is record.time_per_token_s() is None


@pytest.mark.parametrize("keeps", [False, True])
def test_prompts_are_kept_only_if_asked(file, keeps):
    recorder = Recorder(Ledger(file), keeps_prompts=keeps)
    recorder.end(answered(recorder.begin("/v1/completions")))
    recorder.end(recorder.begin("/metrics"))  # what is asked every few seconds is not
    recorder.close()
    (found,) = read_requests(file)
    assert (found.prompt, found.answer) == (("What?", "That.") if keeps else (None, None))
    assert found.t0 == 0
    assert found.t6 == pytest.approx(0.6)
    assert found.own_latency_s() == pytest.approx(0.4)


def test_keys_that_change_are_seen_in_time_while_nothing_is_asked(file):
    ledger = Ledger(file)
    recorder, keyring = Recorder(ledger), Keyring(ledger.keys)
    key, made = KeyStore(file).create("a", KeyLimits())
    time.sleep(SEES_CHANGES_S)
    assert keyring.find(key) == made
    KeyStore(file).revoke("a")
    time.sleep(SEES_CHANGES_S)
    assert keyring.find(key) is None
    recorder.close()


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_names_series_and_labels_that_exist(query):
    (name,) = set(re.findall(r"\btts_\w+", query))
    assert name in SERIES
    labels = set(re.findall(r"label_values\(\w+, (\w+)\)", query))
    for braces in re.findall(r"\{(.*?)\}", query):
        labels.update(re.findall(r"(\w+)[=!]", braces))
    for grouped in re.findall(r"\bby \((.*?)\)", query):
        labels.update(map(str.strip, grouped.split(",")))
    assert labels <= SERIES[name]
    assert ("histogram_quantile" in query) == name.endswith("_bucket")
    assert query.count("(") == query.count(")")


def test_every_metric_is_shown_with_labels_that_its_query_keeps():
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            kept = re.search(r"\bby \((.*?)\)", target["expr"])
            names = set(map(str.strip, kept[1].split(","))) if kept else set()
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= names
    shown = " ".join(QUERIES)
    assert [name for name in re.findall(r"# TYPE (\S+)", TEXT) if name not in shown] == []


def test_panels_do_not_overlap():
    places = [
        (place["x"] + x, place["y"] + y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["w"])
        for y in range(place["h"])
    ]
    assert len(places) == len(set(places))
