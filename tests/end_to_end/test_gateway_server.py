"""The gateway in front of the real server: OpenAI's own client reads every answer of it."""

import contextlib
import json
import re
import ssl
import subprocess

import httpx2
import openai
import pytest
from tests.end_to_end.commands import part_of_server, servers
from tests.end_to_end.gateways import client, connected, eventually, gateway, post, reply

pytestmark = pytest.mark.server

QUESTION = [{"role": "user", "content": "Compute 12 + 30."}]
SEARCH = {"model": "demo:beam-search", "messages": QUESTION, "tts": {"n": 256}, "stream": True}


@pytest.fixture(scope="module")
def address(served):
    with gateway(served) as address:
        yield address


@pytest.fixture(scope="module")
def api(address):
    return client(address)


def chat(api, **fields):
    return api.chat.completions.create(**{"model": "demo", "messages": QUESTION, **fields})


def test_the_models_are_the_deployment_and_its_strategies(api):
    names = [model.id for model in api.models.list()]
    assert names[0] == "demo"
    assert "demo:beam-search" in names
    assert api.models.retrieve("demo:beam-search").id == "demo:beam-search"


def test_a_chat_streams_the_text_that_it_answers_as_a_whole(api):
    whole = chat(api, temperature=0)
    chunks = list(chat(api, temperature=0, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content
    assert r"\boxed{42}" in text
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens > 5
    assert chunks[-1].tts["gateway_ms"] >= 0
    assert len(chunks) > whole.usage.completion_tokens


def test_a_seed_repeats_every_choice_of_several_prompts(api):
    def texts(**fields):
        found = api.completions.create(
            model="demo", prompt=["1 + 1", "2 +"], n=2, max_tokens=8, seed=3, **fields
        )
        if not fields:
            return [choice.text for choice in found.choices]
        parts = ["", "", "", ""]
        for chunk in found:
            for choice in chunk.choices:
                parts[choice.index] += choice.text
        return parts

    assert texts() == texts() == texts(stream=True)


def test_a_stop_string_ends_the_text_and_may_be_part_of_it(api):
    def finished(**fields):
        choice = chat(api, temperature=0, stop=["gives", "\n\n"], **fields).choices[0]
        return choice.message.content, choice.finish_reason

    text, reason = finished()
    assert (text[-8:], reason) == ("ding 30 ", "stop")
    included, _ = finished(extra_body={"include_stop_str_in_output": True})
    assert included == text + "gives"


def test_token_ids_and_log_probabilities(api):
    answer = api.completions.create(
        model="demo", prompt=[[5, 6, 7], [8]], max_tokens=3, logprobs=0, temperature=0
    )
    assert answer.usage.prompt_tokens == 4
    for choice in answer.choices:
        assert len(choice.logprobs.token_logprobs) == len(choice.logprobs.tokens) <= 3
        assert all(value <= 0 for value in choice.logprobs.token_logprobs)
    content = chat(api, temperature=0, logprobs=True).choices[0].logprobs.content
    assert "".join(entry.token for entry in content).startswith("## Step 1")


def test_of_tokens_that_were_not_drawn_the_cpu_engine_tells_nothing(api):
    with pytest.raises(openai.BadRequestError, match="supported by the OpenVINO engine"):
        chat(api, temperature=0, logprobs=True, top_logprobs=2)


def test_a_search_is_a_response_too(api):
    response = api.responses.create(
        model="demo:best-of-n", input="Compute 12 + 30.", extra_body={"tts": {"n": 4}}
    )
    assert r"\boxed{42}" in response.output_text


def test_tokens_that_are_less_likely_than_a_part_of_the_likeliest_are_not_drawn(api):
    greedy = chat(api, temperature=0).choices[0].message.content
    least = chat(api, temperature=1.5, extra_body={"min_p": 1.0}).choices[0].message.content
    assert least == greedy


def test_what_cannot_be_honoured_is_refused_and_what_is_unknown_is_named(api):
    for streams in (False, True):
        with pytest.raises(openai.BadRequestError) as refusal:
            chat(api, logit_bias={"5": 1}, stream=streams)
        assert refusal.value.body["param"] == "logit_bias"
    raw = api.with_raw_response.chat.completions.create(
        model="demo", messages=QUESTION, max_tokens=2, extra_body={"mood": "good", "user": "me"}
    )
    assert raw.headers["x-tts-ignored"] == "mood"
    assert float(raw.headers["x-tts-gateway-ms"]) >= 0


def test_a_search_is_a_model_and_its_usage_is_true(api):
    answer = chat(api, model="demo:beam-search", extra_body={"tts": {"n": 4}})
    assert r"\boxed{42}" in answer.choices[0].message.content
    assert answer.tts["answer"] == "42"
    usage = answer.usage
    reasoning = usage.completion_tokens_details.reasoning_tokens
    assert 0 < reasoning < usage.completion_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.tts["verifier_tokens"] > 0


def test_a_search_streams_its_steps_and_then_the_answer(api):
    whole = chat(api, model="demo:best-of-n", extra_body={"tts": {"n": 4}})
    chunks = list(
        chat(
            api,
            model="demo:best-of-n",
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"tts": {"n": 4}},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    steps = [step for c in chunks for step in (getattr(c, "tts", None) or {}).get("steps", [])]
    assert {step["node"][0] for step in steps} == {0, 1, 2, 3}
    assert chunks[-2].tts["tree_digest"] == whole.tts["tree_digest"]
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_steps_are_scored_in_reward_hubs_shape(api):
    chat = [*QUESTION, {"role": "assistant", "content": "12 + 30 = 42\n\nSo it is \\boxed{42}."}]
    found = api.post("../pooling", body={"model": "demo", "messages": chat}, cast_to=object)
    scores = found["data"][0]["data"]
    assert len(scores) == 2
    assert all(abs(wrong + right - 1) < 1e-5 for wrong, right in scores)


def test_tokens_go_out_and_come_back(api):
    body = {"prompt": "Compute 12 + 30.", "add_special_tokens": False}
    tokens = api.post("../tokenize", body=body, cast_to=object)["tokens"]
    text = api.post("../detokenize", body={"tokens": tokens}, cast_to=object)["prompt"]
    assert text == "Compute 12 + 30."
    asked = api.post("../tokenize", body={"messages": QUESTION}, cast_to=object)["count"]
    assert asked == chat(api, max_tokens=1).usage.prompt_tokens
    assert "messages" in api.get("../tokenizer_info", cast_to=object)["chat_template"]


def ended(address, outcome):
    """How many requests have ended in this way."""
    text = reply(address, "/metrics").text
    found = re.findall(rf'requests_total{{.*outcome="{outcome}".*}} (\S+)', text)
    return sum(map(float, found))


def going_on(address):
    """Requests that have not ended, but for the one that asks."""
    text = reply(address, "/metrics").text
    return sum(map(float, re.findall(r"^tts_gateway_requests_in_flight.* (\S+)$", text, re.M))) - 1


def test_a_client_that_goes_away_before_its_answer_cancels_it_too(address):
    before = ended(address, "cancelled")
    body = {**SEARCH, "tts": {"n": 1024}, "stream": False}
    with connected(address) as there:
        there.sendall(post(json.dumps(body).encode()))
        eventually(lambda: going_on(address) > 0)
    eventually(lambda: ended(address, "cancelled") == before + 1)


def test_a_retry_joins_the_search_that_a_named_one_has_begun(address):
    name = {"Idempotency-Key": "mine"}
    fields = {"model": "demo:beam-search", "messages": QUESTION, "extra_body": {"tts": {"n": 64}}}
    api = client(address)
    first = api.chat.completions.create(**fields, extra_headers=name, stream=False)
    again = api.chat.completions.create(**fields, extra_headers=name, stream=False)
    assert again.usage == first.usage
    assert again.usage.tts["seconds"] == first.usage.tts["seconds"]  # the same search


def test_a_deadline_ends_a_search_with_what_it_has(address):
    api = client(address)
    # chains are complete one after the other, and 1,024 of these take several seconds
    long = {"role": "user", "content": "Compute ((((12 + 30) / 6 + 8) * 4 - 11) / 7 + 30) * 2."}
    fields = {"model": "demo:best-of-n", "messages": [long]}
    answer = None
    for deadline_s in (1.5, 4, 12, 36):  # on a slow machine the first chain comes late
        with contextlib.suppress(openai.InternalServerError):
            answer = api.chat.completions.create(
                **fields, extra_body={"tts": {"n": 1024, "deadline_s": deadline_s}}
            )
            break
    assert answer is not None
    assert answer.tts["limit"] == "deadline"
    assert answer.choices[0].finish_reason == "length"
    with pytest.raises(openai.APIStatusError, match="deadline") as refused:
        api.chat.completions.create(**fields, extra_body={"tts": {"n": 1024, "deadline_s": 0.01}})
    assert refused.value.status_code == 504
    assert refused.value.response.headers["x-should-retry"] == "false"


def test_a_client_that_goes_away_within_its_request_disturbs_nobody(address):
    before = ended(address, "cancelled") + ended(address, "refused")
    with connected(address) as there:
        there.sendall(post(b" " * 1000)[:-500])
    eventually(lambda: ended(address, "cancelled") + ended(address, "refused") == before + 1)
    assert reply(address, "/health").status_code == 200


@pytest.mark.slow  # under load: test_gateway_replicas_server.py; of a run: test_runs_server.py
@pytest.mark.parametrize("victim", ["server", "prm"])
def test_a_server_of_its_own_that_dies_is_started_again_and_what_runs_goes_on(tts, victim):
    def streamed(**fields):
        return iter(chat(api, stream=True, **fields))

    def searched(name):
        body, names = {"tts": {"n": 64}}, {"idempotency-key": name}
        return streamed(model="demo:beam-search", extra_body=body, extra_headers=names)

    def digest(steps):
        *_, last = steps
        return last.tts["tree_digest"]

    with gateway(tts) as address, client(address) as api:
        undisturbed = digest(searched("first"))
        search = searched("second")
        stream = streamed(n=16, max_tokens=250, extra_body={"ignore_eos": True})
        next(stream)
        next(search)
        (server,) = servers(tts)[-1:]
        part_of_server(tts, victim, server).kill()
        assert reply(address, "/health").status_code == 200
        finishes = [each.finish_reason for chunk in stream for each in chunk.choices]
        assert finishes.count("length") == 16
        assert digest(search) == undisturbed
        eventually(lambda: reply(address, "/ready").status_code == 200)
        assert r"\boxed{42}" in chat(api, temperature=0).choices[0].message.content
        assert servers(tts) != [server]


def test_the_gateway_speaks_tls_and_lets_named_pages_read(served, tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", key, "-out", certificate]
    subprocess.run(["openssl", *words, *names, *files], check=True, capture_output=True)
    tls = ["--tls-certificate", certificate, "--tls-key", key]
    page = "https://page.example"
    with gateway(served, *tls, "--cors-origin", page) as address:
        assert address.startswith("https://")
        trusted = ssl.create_default_context(cafile=certificate)
        with httpx2.Client(base_url=address, verify=trusted) as http:
            answer = http.get("/v1/models", headers={"origin": page})
            assert answer.headers["access-control-allow-origin"] == page
            wanted = {"origin": page, "access-control-request-method": "POST"}
            wanted["access-control-request-headers"] = "x-a"
            answer = http.options("/v1/models", headers=wanted)
            assert answer.status_code == 204
            assert answer.headers["access-control-allow-headers"] == "x-a"
            answer = http.get("/v1/models", headers={"origin": "https://other.example"})
            assert answer.status_code == 403
