"""A gateway that is stopped: what runs is answered, what is new is sent elsewhere."""

import http.client
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import openai
import pytest
from tests.end_to_end.gateways import client, eventually, reply, started

pytestmark = pytest.mark.server

QUESTION = [{"role": "user", "content": "Compute 12 + 30."}]
LONG = {"model": "demo", "messages": QUESTION, "stream": True, "n": 128, "max_tokens": 250}


@contextmanager
def gateway(tts, *arguments):
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


def connected(address):
    return closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=60))


def test_what_runs_is_answered_and_what_is_new_is_sent_elsewhere(served):
    with (
        gateway(served, "--grace", 60) as (process, address, said),
        client(address) as api,
        connected(address) as held,
        connected(address) as idle,
    ):
        stream = iter(api.chat.completions.create(**LONG | {"n": 8, "temperature": 0}))
        next(stream)
        body = json.dumps({"model": "demo:beam-search", "messages": QUESTION, "tts": {"n": 8}})
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
            api.chat.completions.create(model="demo", messages=QUESTION)

        assert {c.finish_reason for chunk in stream for c in chunk.choices} >= {"stop"}
        assert process.poll() is None
        held.send(body[-1:].encode())
        answer = json.loads(held.getresponse().read())
        assert answer["tts"]["answer"] == "42"
    assert process.returncode == 0
    assert any("Draining: " in line for line in said)


def test_a_second_signal_ends_searches_with_what_they_have_and_streams_with_an_error(served):
    with (
        gateway(served, "--grace", 600) as (process, address, _),
        client(address) as api,
        ThreadPoolExecutor() as threads,
    ):
        search = {"model": "demo:best-of-n", "messages": QUESTION, "stream": True}
        steps = iter(api.chat.completions.create(**search, extra_body={"tts": {"n": 1024}}))
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
