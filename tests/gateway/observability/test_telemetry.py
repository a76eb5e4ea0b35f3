import sys

import pytest
from tests.gateway.observability.otlp_collector import attributes, collecting

from tts.base.errors import ConfigError
from tts.gateway.observability.record import ServedRequest
from tts.gateway.observability.recorder import Recorder
from tts.gateway.observability.telemetry import ENDPOINT_VARIABLES, telemetry_of


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch):
    for name in ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def record(**changes):
    made = ServedRequest(
        id="abc",
        endpoint="/v1/chat/completions",
        time=1_700_000_000.0,
        t0=50.0,
        **{f"t{i}": 50.0 + i / 8 for i in range(1, 7)},
        **{"model": "demo:beam-search", "strategy": "beam-search", "stream": True},
        **{"key": "k1", "replica": "r1", "outcome": "ok", "status": 200},
        **{"prompt_tokens": 7, "answer_tokens": 5, "search_tokens": 40, "verifier_tokens": 90},
        **{"prompt": "What is secret?", "answer": "This is."},
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def sent(*records):
    """What a collector gets of some records."""
    with collecting() as collector:
        telemetry = telemetry_of(collector.endpoint, "demo")
        telemetry.write(records)
        telemetry.close()
        return collector


def test_a_request_is_a_span_with_the_names_of_generative_ai():
    collector = sent(record())
    (span,) = [span for span in collector.spans if not span.parent_span_id]
    assert span.name == "chat demo:beam-search"
    assert span.kind == span.SPAN_KIND_SERVER
    assert span.start_time_unix_nano == 1_700_000_000 * 10**9
    assert span.end_time_unix_nano - span.start_time_unix_nano == 750_000_000
    assert attributes(span.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "tts",
        "gen_ai.request.model": "demo:beam-search",
        "gen_ai.response.model": "demo:beam-search",
        "gen_ai.response.id": "abc",
        "gen_ai.request.stream": True,
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 45,
        "gen_ai.usage.reasoning.output_tokens": 40,
        "gen_ai.response.time_to_first_chunk": 0.625,
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "tts.strategy": "beam-search",
        "tts.replica": "r1",
        "tts.key": "k1",
        "tts.verifier_tokens": 90,
        "tts.gateway.own_latency": 0.5,
    }
    assert collector.resources[0]["service.name"] == "tts-gateway/demo"


def test_the_stages_are_spans_inside_it_and_no_prompt_is_in_any():
    collector = sent(record(), record(t3=None, t4=None, outcome="failed", status=500))
    whole = [span for span in collector.spans if not span.parent_span_id]
    inside = {root.span_id: [] for root in whole}
    for span in collector.spans:
        if span.parent_span_id:
            inside[span.parent_span_id].append(span.name.removeprefix("tts.gateway."))
    stages = ["admission", "queue", "engine", "filters", "encoding", "sending"]
    assert list(inside.values()) == [stages, ["admission", "queue", "sending"]]
    assert [span.status.code for span in whole] == [0, 2]
    assert attributes(whole[1].attributes)["error.type"] == "failed"
    assert all(b"secret" not in request.SerializeToString() for request in collector.requests)


def test_a_caller_that_sends_its_trace_gets_the_request_in_it():
    trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    collector = sent(
        record(trace_parent=f"00-{trace}-{caller}-01"),
        record(trace_parent=f"00-{trace}-{caller}-00"),  # not sampled: neither is ours
        record(trace_parent="nonsense"),
    )
    (followed,) = [span for span in collector.spans if span.parent_span_id.hex() == caller]
    assert followed.trace_id.hex() == trace
    assert len([span for span in collector.spans if span.name.startswith("chat")]) == 2


def test_a_recorder_sends_what_ends_and_the_rest_when_it_closes(monkeypatch):
    assert telemetry_of(None, "demo") is None
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        recorder = Recorder(telemetry=telemetry_of(None, "demo"))
        for endpoint in ("/v1/completions", "/v1/models", "/metrics"):
            recorder.end(recorder.begin(endpoint))
        recorder.close()
    (span,) = [span for span in collector.spans if not span.parent_span_id]
    assert attributes(span.attributes)["gen_ai.operation.name"] == "text_completion"


def test_without_its_packages_an_endpoint_is_a_mistake_with_a_way_on(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match="OpenTelemetry is not installed") as refused:
        telemetry_of("http://localhost:4318", "demo")
    assert "pip install 'opentelemetry-exporter-otlp-proto-http>=" in refused.value.hint
