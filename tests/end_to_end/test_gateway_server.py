"""The gateway's API in front of the real server: OpenAI's own client reads its answers, the engine
keeps its forms, a model thinks."""

import contextlib
import json
import re
import ssl
import subprocess
import threading
from typing import Literal

import httpx2
import jsonschema
import openai
import pydantic
import pytest
from tests.end_to_end.commands import part_of_server, quiet, servers
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


def test_a_chat_streams_the_text_that_it_answers_as_a_whole(api):
    assert {"demo", "demo:beam-search"} <= {model.id for model in api.models.list()}
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


def test_tokens_that_are_less_likely_than_a_part_of_the_likeliest_are_not_drawn(api):
    greedy = chat(api, temperature=0).choices[0].message.content
    least = chat(api, temperature=1.5, extra_body={"min_p": 1.0}).choices[0].message.content
    assert least == greedy


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


def test_a_retry_joins_the_search_that_a_named_one_has_begun(api):
    fields = {"model": "demo:beam-search", "extra_body": {"tts": {"n": 64}}}
    first, again = (chat(api, **fields, extra_headers={"Idempotency-Key": "1"}) for _ in range(2))
    assert again.usage == first.usage  # with its seconds: the same search


def test_a_deadline_ends_a_search_with_what_it_has(api):
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


@pytest.mark.slow  # under load: test_gateway_operations_server.py; of a run: test_runs_server.py
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


DOUBLE = {
    "type": "function",
    "function": {
        "name": "double",
        "parameters": {
            "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
            "required": ["n"],
        },
    },
}


class Unit(pydantic.BaseModel):
    name: Literal["m", "km"]


class Length(pydantic.BaseModel):
    value: int = pydantic.Field(ge=0, le=100)
    unit: Unit
    note: str | None = pydantic.Field(default=None, max_length=8)


class Plain(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    value: int
    units: list[Unit] = pydantic.Field(max_length=2)


FORM = {
    "type": "json_schema",
    "json_schema": {"name": "length", "schema": Length.model_json_schema()},
}


@pytest.mark.parametrize("model", ["demo", "demo:best-of-n", "demo:beam-search"])
@pytest.mark.parametrize("form", [Length, Plain])
def test_openais_client_parses_answers(api, model, form):
    for seed in range(3):
        answer = api.chat.completions.parse(
            model=model,
            messages=QUESTION,
            response_format=form,
            temperature=1.5,
            seed=seed,
            extra_body={"tts": {"n": 4}} if ":" in model else {},
        )
        assert isinstance(answer.choices[0].message.parsed, form)
    fields = {"model": model, "messages": QUESTION, "response_format": form}
    with api.chat.completions.stream(**fields) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, form)


def test_a_schema_may_refer_to_itself(api):
    node = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    schema = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    for seed in range(4):
        said = chat(api, temperature=1.5, seed=seed, extra_body={"guided_json": schema}).choices[0]
        if said.finish_reason == "stop":
            jsonschema.validate(json.loads(said.message.content), schema)
        assert said.message.content.startswith('{"n":')


def test_small_models_end_their_answers_at_any_temperature(api):
    """JSON with any white space never ended: the model went on with line breaks."""
    for seed in range(20):
        said = chat(api, response_format=FORM, temperature=seed / 10, seed=seed).choices[0]
        assert said.finish_reason == "stop"
        Length.model_validate_json(said.message.content)


def test_texts_follow_expressions_and_choices(api):
    for seed in range(3):
        fields = {
            "temperature": 1.5,
            "seed": seed,
            "extra_body": {"guided_regex": r"[a-c]{2}-\d{3}"},
        }
        assert re.fullmatch(r"[a-c]{2}-\d{3}", chat(api, **fields).choices[0].message.content)
        fields["extra_body"] = {"structured_outputs": {"choice": ["red fish", "blue\nfish"]}}
        assert chat(api, **fields).choices[0].message.content in ("red fish", "blue\nfish")
    form = {"type": "json_object", "schema": Plain.model_json_schema()}
    answer = chat(api, **HOT, response_format=form, max_tokens=120).choices[0]
    Plain.model_validate_json(answer.message.content)


HOT = {"temperature": 1.5, "seed": 1}
NAMED = {"type": "function", "function": {"name": "double"}}


@pytest.mark.parametrize("model", ["demo", "demo:majority-vote"])
@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("streams", [False, True])
def test_a_call_that_must_come_has_valid_arguments(api, model, choice, streams):
    asked = {
        "model": model,
        "messages": QUESTION,
        "tools": [DOUBLE],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "extra_body": {"tts": {"n": 4}} if ":" in model else {},
    }
    if streams:
        with api.chat.completions.stream(**asked) as stream:
            said = stream.get_final_completion().choices[0]
    else:
        said = api.chat.completions.create(**asked).choices[0]
    assert (said.finish_reason, said.message.content or None) == ("tool_calls", None)
    (call,) = said.message.tool_calls
    assert call.function.name == "double"
    jsonschema.validate(json.loads(call.function.arguments), DOUBLE["function"]["parameters"])


def test_a_model_that_may_call_and_does_not_answers(api):
    said = chat(api, tools=[DOUBLE], temperature=0).choices[0]
    assert said.message.content
    assert not said.message.tool_calls


DATE = {"type": "string", "format": "date"}
TEXTS = [{"type": "string", "maxLength": 1000 - place} for place in range(50)]
HOSTILE = {
    "blocks": ({"guided_regex": "(?:[a-z]{1,1000}){1,1000}" * 120}, 400),
    "nested": ({"guided_regex": "(?:[a-z]{1,40}){1,40}"}, 400),
    "in a row": ({"guided_regex": "[a-z]{1,1000}" * 10}, 400),
    "optional": ({"guided_regex": "a?" * 2000}, 400),
    "exponential": ({"guided_regex": "((a|b)*a(a|b){12})*"}, 400),
    "stars": ({"guided_regex": "(([a-z]*)*)*" * 300}, 200),
    "10,000 states": ({"guided_regex": "(?:[a-z]{100}){100}"}, 200),
    "a long choice": ({"guided_choice": ["a" * 3_000_000]}, 400),
    "many choices": ({"guided_choice": [f"c{place}" for place in range(100_000)]}, 400),
    "texts": ({"guided_json": {"anyOf": TEXTS}}, 400),
    "an engine's texts": ({"guided_json": {"anyOf": [DATE, *TEXTS[:2]]}}, 400),
    "members": ({"guided_json": {"properties": {f"k{at}": DATE for at in range(900)}}}, 200),
    "schemas": ({"guided_json": {"anyOf": [{"anyOf": [DATE] * 99}] * 99}}, 400),
}


@pytest.mark.parametrize(("form", "status"), HOSTILE.values(), ids=HOSTILE)
def test_others_are_answered_while_a_hostile_form_is_dealt_with(address, form, status):
    answers = []
    body = {"model": "demo", "messages": QUESTION, "max_tokens": 4}

    def ask():
        answers.append(reply(address, "/v1/chat/completions", {**body, **form}))

    hostile = threading.Thread(target=ask)
    hostile.start()
    others = []
    while hostile.is_alive() or not others:
        others.append(reply(address, "/v1/chat/completions", body).status_code)
    assert [each.status_code for each in answers] == [status], answers[0].text
    assert set(others) == {200}


@pytest.fixture(scope="module")
def thinker(new_home):
    with (
        quiet(new_home("demo-thinking")) as tts,
        gateway(tts, deployment="demo-thinking") as address,
    ):
        yield client(address)


def thought_of(thinker, model="demo-thinking", **fields):
    """Thinking and answer, and the tokens of the thinking of a plain chat."""
    answer = thinker.chat.completions.create(
        model=model, messages=QUESTION, seed=1, temperature=0.8, extra_body=fields
    )
    message, details = answer.choices[0].message, answer.usage.completion_tokens_details
    thought = getattr(message, "reasoning_content", None)
    return thought, message.content, details and details.reasoning_tokens


def test_thinking_has_a_budget_is_streamed_first_and_can_be_off(thinker):
    for budget in (3, 200):
        whole = thought_of(thinker, thinking_token_budget=budget)
        assert whole[1].startswith("## Step 1")
        assert whole[2] == 3 if budget == 3 else 3 < whole[2] <= 200
        assert "think>" not in whole[0] + whole[1]
        stream = thinker.chat.completions.create(
            model="demo-thinking",
            messages=QUESTION,
            seed=1,
            temperature=0.8,
            stream=True,
            extra_body={"thinking_token_budget": budget},
        )
        deltas = [choice.delta for chunk in stream for choice in chunk.choices]
        thought = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
        said = [delta.content or "" for delta in deltas]
        assert ("".join(thought), "".join(said)) == whole[:2]
        first = next(place for place, text in enumerate(said) if text)
        assert not any(thought[first:])
    for off in ({"thinking_token_budget": 0}, {"reasoning_effort": "none"}):
        thought, text, tokens = thought_of(thinker, **off)
        assert (thought, tokens) == (None, None)
        assert text.startswith("## Step 1")


def test_forms_and_searches_answer_behind_the_thinking(thinker):
    thought, text, _ = thought_of(thinker, guided_regex="[0-9]{2}")
    assert thought
    assert len(text) == 2
    assert text.isdecimal()
    thought, text, _ = thought_of(thinker, "demo-thinking:beam-search", tts={"n": 4})
    assert text.startswith("## Step 1")
    assert thought
    assert "think>" not in thought
