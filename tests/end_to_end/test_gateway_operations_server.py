"""The gateway in operation: keys, limits, filters, log and telemetry; hostile clients; its end; the
servers behind it."""

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import openai
import psutil
import pytest
from tests.amounts import amount
from tests.end_to_end import hostile_requests as hostile
from tests.end_to_end.commands import Tts, quiet
from tests.end_to_end.gateways import client, connected, eventually, gateway, post, reply, started
from tests.gateway.observability.otlp_collector import attributes, collecting

from tts.build.spec import load_deployment
from tts.serving.repository.gateway import deployment_text, engine_manifests
from tts.serving.server.start import start_server
from tts.serving.server.triton import Triton

pytestmark = pytest.mark.server

QUESTION = "Compute 12 + 30."
ASKED = [{"role": "user", "content": QUESTION}]
LOST_S = 1.0
"""Documented: 0.1 s; here others have the CPU, too."""
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
def operated(new_served_home):
    """A home with keys of its own, whose server runs."""
    return Tts(new_served_home())


@pytest.fixture(scope="module")
def keys(operated):
    """API keys by name, made by the command."""

    def create(name, *limits):
        out, _ = operated.done("gateway", "keys", "create", name, *limits)
        return out.strip()

    return {
        "open": create("open"),
        "few": create("few", "--requests-per-minute", "2", "--tokens-per-minute", "100000"),
        "one search": create("one search", "--concurrent-searches", "1"),
        "gone": create("gone"),
    }


@pytest.fixture(scope="module")
def address(operated, keys, collector):
    file = operated.home / "filters.yaml"
    file.write_text(FILTERS)
    options = ("--filter", file, "--otlp-endpoint", collector.endpoint)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
        with gateway(operated, *options) as address:
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


def logged(operated):
    out, _ = operated.done("gateway", "requests", "demo", "--format", "jsonl")
    return [json.loads(line) for line in out.splitlines()]


def test_only_a_valid_key_is_served(address, keys):
    for wrong in ("none", keys["open"][:-1] + "x"):
        with pytest.raises(openai.AuthenticationError):
            asked(address, wrong)
    assert reply(address, "/v1/models").status_code == 401
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


def test_a_key_that_is_revoked_is_refused_by_the_gateway_that_runs(address, keys, operated):
    assert asked(address, keys["gone"], max_tokens=1).status_code == 200
    assert operated.run("gateway", "keys", "revoke", "gone")[0] == 0
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


@pytest.mark.parametrize(
    ("model", "fields", "kind"),
    [
        ("demo", {"n": 64, "max_tokens": 250, "ignore_eos": True}, "answer_tokens"),
        ("demo:beam-search", {"tts": {"n": 256}}, "search_tokens"),
    ],
)
def test_a_client_that_goes_away_is_charged_what_it_has_used(
    address, keys, operated, model, fields, kind
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
        lambda: [row for row in logged(operated) if (row["model"], row["outcome"]) == asked_for]
    )
    assert row[kind] > 0
    assert row["replica"]


def test_a_request_is_logged_with_its_stages_tokens_and_key_and_traced(
    address, keys, operated, collector
):
    *_, last = asked(
        address,
        keys["open"],
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={"traceparent": f"00-{TRACE}-{CALLER}-01"},
    ).parse()
    (row,) = eventually(
        lambda: [row for row in logged(operated) if TRACE in (row["trace_parent"] or "")]
    )
    listed = operated.run("gateway", "keys", "list")[1]
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


def test_no_key_is_in_any_file(address, keys, operated):
    for file in (operated.home / "gateway").rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert not any(key[4:].encode() in content for key in keys.values()), file


@pytest.fixture(scope="module")
def bare_address(new_served_home):
    """A gateway without keys and filters."""
    with gateway(Tts(new_served_home())) as address:
        yield address


def test_no_hostile_request_gets_an_answer_of_500_or_hangs(bare_address):
    each = amount(6, 100)
    seen = hostile.run(bare_address, each, 0)
    assert [name for name in seen if ": 5" in name] == []
    assert seen["nothing wrong: 200"] == each
    for name, request in hostile.OVERSIZE.items():
        assert hostile.exchange(bare_address, request) in (413, None), name


@pytest.mark.slow
def test_no_request_made_up_from_the_document_gets_an_answer_of_500(bare_address, tmp_path):
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    words = ["run", f"{bare_address}/openapi.json", "--checks", "not_a_server_error", "--seed", "0"]
    words += ["--max-examples", str(amount(2, 10)), "--phases", "fuzzing"]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,  # it keeps files where it runs
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_silent_connections_end_and_delay_nobody(bare_address):
    hostile.run_idle(bare_address, amount(300, 1000))


def test_the_log_of_a_gateway_that_is_killed_holds_what_it_has_answered(served):
    process, address = started(served)
    answered, ended, since = [], threading.Event(), time.time()

    def ask():
        while not ended.is_set():
            try:
                if hostile.exchange(address, post(hostile.chat())) == 200:
                    answered.append(time.monotonic())
            except OSError:
                return

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.5 + LOST_S)
    killed = time.monotonic()
    process.kill()
    process.communicate(timeout=60)
    ended.set()
    for thread in threads:
        thread.join()
    out, _ = served.done("gateway", "requests", "demo", "--format", "jsonl")
    logged = [json.loads(line) for line in out.splitlines()]
    ok = sum(record["time"] >= since and record["outcome"] == "ok" for record in logged)
    due = sum(at < killed - LOST_S for at in answered)
    assert 0 < due <= ok


LONG = {"model": "demo", "messages": ASKED, "stream": True, "n": 128, "max_tokens": 250}


@contextmanager
def ending(tts, *arguments):
    """The process of a gateway, its address and, once it has ended, what it has said."""
    process, address = started(tts, *arguments)
    said = []
    try:
        yield process, address, said
        said.append(process.communicate(timeout=120)[1])
    finally:
        process.kill()
        process.wait()
    assert not any("Traceback" in text for text in said), said


def connection_to(address):
    return closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=60))


def test_what_runs_is_answered_and_what_is_new_is_sent_elsewhere(served):
    with (
        ending(served, "--grace", 60) as (process, address, said),
        client(address) as api,
        connection_to(address) as held,
        connection_to(address) as idle,
    ):
        stream = iter(api.chat.completions.create(**LONG | {"n": 8, "temperature": 0}))
        next(stream)
        body = json.dumps({"model": "demo:beam-search", "messages": ASKED, "tts": {"n": 8}})
        held.putrequest("POST", "/v1/chat/completions")
        held.putheader("content-length", len(body))
        held.endheaders(body[:-1].encode())  # a search that begins when its body is complete
        idle.request("GET", "/v1/models")
        assert idle.getresponse().read()

        process.send_signal(signal.SIGTERM)
        eventually(lambda: reply(address, "/ready").status_code == 503)
        assert (
            reply(address, "/health").status_code == reply(address, "/metrics").status_code == 200
        )
        idle.request("GET", "/v1/models")
        refusal = idle.getresponse()
        assert (refusal.status, refusal.headers["connection"]) == (503, "close")
        assert int(refusal.headers["retry-after"]) >= 1
        assert json.loads(refusal.read())["error"]["code"] == "gateway_draining"
        with pytest.raises(openai.InternalServerError, match="takes nothing new"):
            api.chat.completions.create(model="demo", messages=ASKED)

        assert {c.finish_reason for chunk in stream for c in chunk.choices} >= {"stop"}
        assert process.poll() is None
        held.send(body[-1:].encode())
        answer = json.loads(held.getresponse().read())
        assert answer["tts"]["answer"] == "42"
    assert process.returncode == 0
    (last,) = said
    assert re.search(r"Draining: [1-9]\d* requests? left, .*Drained: ", last, re.DOTALL)


def test_a_second_signal_ends_searches_with_what_they_have_and_streams_with_an_error(served):
    with (
        ending(served, "--grace", 600) as (process, address, _),
        client(address) as api,
        ThreadPoolExecutor() as threads,
    ):
        search = {"model": "demo:best-of-n", "messages": ASKED, "stream": True}
        steps = iter(api.chat.completions.create(**search, extra_body={"tts": {"n": 512}}))
        eventually(
            lambda: (getattr(next(steps), "tts", None) or {}).get("best")
        )  # a completion is there
        stream = iter(api.chat.completions.create(**LONG | {"extra_body": {"ignore_eos": True}}))
        next(stream)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        cut_off = threads.submit(list, stream)
        *_, last = steps
        assert last.tts["limit"] == "deadline"
        assert last.tts["answer"]
        with pytest.raises(openai.APIError, match="was stopped"):
            cut_off.result()
    assert process.returncode == 130


SUMS = [f"Compute {a} + {b}." for a in (12, 17, 23, 31) for b in range(10, 20)]


@pytest.fixture
def servers(tts, server, new_home, monkeypatch):
    """One to be killed, one of all tests, and one to be added."""

    def started(home):
        monkeypatch.setenv("TTS_HOME", str(home))
        return start_server(Triton(load_deployment("demo")))

    with started(tts.home) as first, started(new_home()) as third:
        yield first, server[0], third


def answer(api, question):
    """The text of a streamed answer, how it ended, and how many tokens it is said to have."""
    stream = api.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": question}],
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, finish, usage = "", [], None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish += [choice.finish_reason] if choice.finish_reason else []
    return text, finish, usage.completion_tokens


def search(api, question):
    answer = api.chat.completions.create(
        model="demo:beam-search",
        messages=[{"role": "user", "content": question}],
        extra_body={"tts": {"n": 16}},
    )
    return answer.tts["tree_digest"]


def test_a_server_that_is_killed_under_load_loses_no_request(tts, servers, tmp_path):
    first, second, third = servers
    file = tmp_path / "servers"

    def use(*used):
        new = tmp_path / "new"
        new.write_text("".join(f"{server.addresses.grpc}\n" for server in used))
        new.replace(file)

    use(first, second)
    with gateway(tts, "--endpoints-file", file) as address, ThreadPoolExecutor(24) as threads:
        api = client(address)
        undisturbed = [answer(api, question) for question in SUMS[:8]]
        digest = search(api, SUMS[0])
        answers = [threads.submit(answer, api, question) for question in SUMS * 2]
        searches = [threads.submit(search, api, SUMS[0]) for _ in range(2)]
        answers[8].result()
        psutil.Process(first.state.server.pid).kill()
        answers[40].result()
        use(second, third)
        found = [each.result() for each in answers]
        assert found[:8] == found[40:48] == undisturbed
        assert all(finish == ["stop"] for _, finish, _ in found)
        assert {each.result() for each in searches} == {digest}


def without_weights(folder):
    """The demo pair's deployment with checkpoints in `folder`, and its manifests in `folder`."""
    demo = load_deployment("demo")
    specs = {}
    for role, spec in demo.engines().items():
        shutil.copytree(spec.checkpoint, folder / role, ignore=lambda *_: ["model.safetensors"])
        specs[role] = spec.model_copy(update={"checkpoint": folder / role})
    for role, file in engine_manifests(demo).items():
        place = folder / "built" / "demo" / role / file.name
        place.parent.mkdir(parents=True)
        shutil.copyfile(file, place)
    return demo.model_copy(update=specs)


@pytest.mark.slow
def test_a_gateway_elsewhere_needs_neither_engines_nor_weights(new_home, tmp_path, monkeypatch):
    monkeypatch.setenv("TTS_HOME", str(new_home()))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    demo = load_deployment("demo")
    served = demo.model_copy(update={"server": demo.server.model_copy(update={"grpc_port": port})})
    with start_server(Triton(served)):
        file = tmp_path / "deployment.yaml"
        file.write_text(deployment_text(without_weights(tmp_path), "127.0.0.1", port))
        options = ("--endpoint", f"dns:localhost:{port}")
        with quiet(tmp_path) as tts, gateway(tts, *options, deployment=file) as address:
            body = {"model": "demo:beam-search", "messages": ASKED, "tts": {"n": 4}}
            assert reply(address, "/v1/chat/completions", body).json()["tts"]["answer"] == "42"
            assert reply(address, "/ready").status_code == 200
