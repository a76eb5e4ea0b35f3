"""Keys, limits, filters, the log of requests and telemetry of a gateway that runs."""

import json
import re

import openai
import pytest
from tests.end_to_end.commands import Tts
from tests.end_to_end.gateways import client, connected, eventually, gateway, post, reply
from tests.gateway.observability.otlp_collector import attributes, collecting

pytestmark = pytest.mark.server

QUESTION = "Compute 12 + 30."
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FILTERS = r"""
- pattern: (?i)the final \w{1,20} is
  applies_to: output
  action: redact
- term: halcyon
- pattern: \d{7}
  name: long numbers
"""


@pytest.fixture(scope="module")
def collector():
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def tts(new_served_home):
    """A home with keys of its own, whose server runs."""
    return Tts(new_served_home())


@pytest.fixture(scope="module")
def keys(tts):
    """API keys by name, made by the command."""

    def create(name, *limits):
        out, _ = tts.done("gateway", "keys", "create", name, *limits)
        return out.strip()

    return {
        "open": create("open"),
        "few": create("few", "--requests-per-minute", "2", "--tokens-per-minute", "100000"),
        "one search": create("one search", "--concurrent-searches", "1"),
        "gone": create("gone"),
    }


@pytest.fixture(scope="module")
def address(tts, keys, collector):
    file = tts.home / "filters.yaml"
    file.write_text(FILTERS)
    options = ("--filter", file, "--otlp-endpoint", collector.endpoint)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
        with gateway(tts, *options) as address:
            yield address


def asked(address, key, content=QUESTION, **fields):
    api = client(address).with_options(api_key=key)
    return api.chat.completions.with_raw_response.create(
        **{
            "model": "demo",
            "messages": [{"role": "user", "content": content}],
            "temperature": 0,
            **fields,
        }
    )


def logged(tts):
    out, _ = tts.done("gateway", "requests", "demo", "--format", "jsonl")
    return [json.loads(line) for line in out.splitlines()]


def test_only_a_valid_key_is_served(address, keys):
    for wrong in ("none", keys["open"][:-1] + "x", ""):
        with pytest.raises((openai.AuthenticationError, openai.APIConnectionError)):
            asked(address, wrong)
    assert asked(address, keys["open"]).status_code == 200


def test_a_key_is_limited_and_told_so_in_every_answer(address, keys):
    first = asked(address, keys["few"])
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert first.headers["x-ratelimit-limit-tokens"] == "100000"
    asked(address, keys["few"])
    with pytest.raises(openai.RateLimitError, match="2 requests per minute") as refused:
        asked(address, keys["few"])
    headers = refused.value.response.headers
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert 0 < int(headers["retry-after"]) <= 30


def test_a_key_that_is_revoked_is_refused_by_the_gateway_that_runs(address, keys, tts):
    assert asked(address, keys["gone"], max_tokens=1).status_code == 200
    assert tts.run("gateway", "keys", "revoke", "gone")[0] == 0
    eventually(lambda: is_refused(address, keys["gone"]))


def is_refused(address, key):
    try:
        asked(address, key, max_tokens=1)
    except openai.AuthenticationError:
        return True
    return False


def test_answers_are_redacted_the_same_whole_and_token_by_token(address, keys):
    whole = asked(address, keys["open"]).parse().choices[0].message.content
    chunks = asked(address, keys["open"], stream=True).parse()
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert streamed == whole
    assert "[redacted]" in whole
    assert "final" not in whole


def test_what_a_rule_blocks_is_an_error_that_names_the_rule_alone(address, keys):
    with pytest.raises(openai.BadRequestError, match="rule 'rule 2'") as blocked:
        asked(address, keys["open"], "Tell me of Halcyon.")
    assert "halcyon" not in blocked.value.response.text.lower()
    with pytest.raises(openai.BadRequestError, match="long numbers"):
        asked(address, keys["open"], "Compute 1234567 + 1.")


def test_no_way_leads_around_the_filters(address, keys):
    text = "Tell me of Halcyon."
    asked_for = {"model": "demo", "prompt": text}
    tokens = reply(address, "/tokenize", asked_for, keys["open"]).json()["tokens"]
    dialogue = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": f"{text}\n\nIt is 42."},
    ]
    for path, fields in (
        ("/v1/completions", {"prompt": text}),
        ("/v1/completions", {"prompt": tokens}),
        ("/v1/chat/completions", {"messages": dialogue}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "budget": 2}),
        ("/pooling", {"messages": dialogue}),
    ):
        answer = reply(address, path, {"model": "demo", **fields}, keys["open"])
        assert answer.status_code == 400, path
        assert "content_filter" in answer.text


@pytest.mark.parametrize(
    ("model", "fields", "kind"),
    [
        ("demo", {"n": 8, "max_tokens": 250, "ignore_eos": True}, "answer_tokens"),
        ("demo:beam-search", {"tts": {"n": 256}}, "search_tokens"),
    ],
)
def test_a_client_that_goes_away_is_charged_what_it_has_used(
    address, keys, tts, model, fields, kind
):
    body = {"model": model, "stream": True, **fields}
    body["messages"] = [{"role": "user", "content": QUESTION}]
    with connected(address) as connection:
        key = f"authorization: Bearer {keys['open']}\r\n"
        connection.sendall(post(json.dumps(body).encode(), key))
        received = b""
        while received.count(b"data: ") < 4:
            more = connection.recv(65536)
            assert more, received
            received += more
    asked_for = model, "cancelled"
    (row,) = eventually(
        lambda: [row for row in logged(tts) if (row["model"], row["outcome"]) == asked_for]
    )
    assert row[kind] > 0
    assert row["replica"]


def test_a_request_is_logged_with_its_stages_tokens_and_key_and_traced(
    address, keys, tts, collector
):
    *_, last = asked(
        address,
        keys["open"],
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={"traceparent": f"00-{TRACE}-{CALLER}-01"},
    ).parse()
    (row,) = eventually(
        lambda: [row for row in logged(tts) if TRACE in (row["trace_parent"] or "")]
    )
    listed = tts.run("gateway", "keys", "list")[1]
    assert re.search(rf"{row['key']} +open", listed)
    assert (row["model"], row["outcome"], row["status"], row["stream"]) == ("demo", "ok", 200, True)
    assert row["prompt_tokens"] == last.usage.prompt_tokens
    assert row["answer_tokens"] == last.usage.completion_tokens
    stages = [row[f"t{i}"] for i in range(1, 7)]
    assert all(stage is not None for stage in stages)
    assert stages == sorted(stages)
    assert row["prompt"] is row["answer"] is None
    (span,) = eventually(
        lambda: [span for span in collector.spans if span.parent_span_id.hex() == CALLER]
    )
    assert span.trace_id.hex() == TRACE
    found = attributes(span.attributes)
    assert found["gen_ai.response.id"] == row["id"]
    assert found["gen_ai.usage.output_tokens"] == row["answer_tokens"]


def test_metrics_count_what_was_asked(address, keys):
    text = reply(address, "/metrics", key=keys["open"]).text
    assert re.search(r'requests_total\{endpoint="/v1/chat/completions",.*"filtered"', text)
    assert re.search(r'status="429"\} 1\.0\n', text)
    assert re.search(r'tts_gateway_tokens_total\{kind="answer",model="demo"\} \d+', text)


def test_no_key_is_in_any_file(address, keys, tts):
    for file in (tts.home / "gateway").rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert not any(key[4:].encode() in content for key in keys.values()), file
