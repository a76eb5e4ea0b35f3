"""Which search a request asks for, by whichever of its fields."""

from types import SimpleNamespace

import msgspec
import pytest

from tts.gateway.answer.search_request import read_search_request
from tts.gateway.call import Call, Settings
from tts.gateway.openai.errors import ApiError
from tts.gateway.openai.requests import ChatRequest, read_request
from tts.problem import Problem
from tts.runs.config import Limits, RunConfig

PROBLEM = Problem("p", "Compute 2 + 2.")


def chat(**fields):
    said = {"model": "tiny", "messages": [{"role": "user", "content": "?"}], **fields}
    return read_request(ChatRequest, msgspec.json.encode(said))[0]


@pytest.fixture
def read(tiny_deployment):
    def reads(named=None, headers=(), settings=None, **fields):
        service = SimpleNamespace(deployment=tiny_deployment, settings=settings or Settings())
        exchange = SimpleNamespace(header=dict(headers).get, key=None, record=SimpleNamespace())
        call = Call(service, exchange, chat(**fields), strategy=named)
        return read_search_request(call, PROBLEM)

    return reads


@pytest.mark.parametrize(
    ("fields", "named", "wants"),
    [
        ({}, None, False),
        ({"tts": {"seed": 3}}, None, False),
        ({}, "beam-search", True),
        ({"budget": 4}, None, True),
        ({"tts": {"n": 4}}, None, True),
        ({"tts": {"budget": 4}}, None, True),
        ({"tts": {"strategy": "best-of-n"}}, None, True),
    ],
)
def test_a_search_is_asked_for_by_the_models_name_or_a_field(fields, named, wants):
    assert chat(**fields).asks_search(named) is wants


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"budget_tokens": 300}, "is for searches"),
        ({"deadline_s": 2}, "is for searches"),
        ({"parameters": {"temperature": 1}}, "is for searches"),
        ({"deadline_s": 1e-9}, ">= 0.01"),
        ({"deadline_s": 0}, ">= 0.01"),
        ({"budget_tokens": 1}, ">= 2"),
    ],
)
def test_limits_are_of_a_search_and_enough_for_it_to_find_anything(options, wrong):
    with pytest.raises(ApiError, match=wrong) as refused:
        chat(tts=options).asks_search(None)
    assert (refused.value.status, refused.value.param) == (400, f"tts.{next(iter(options))}")


def test_the_strategy_is_that_of_the_name_or_the_field_or_the_default(read):
    assert read(named="best-of-n").config.strategy == "best-of-n"
    assert read(tts={"strategy": "best-of-n"}).config.strategy == "best-of-n"
    assert read(budget=4).config.strategy == RunConfig().strategy == "beam-search"


def test_fields_of_any_client_become_the_strategys_parameters(read):
    asked = read(
        named="best-of-n", budget=4, temperature=0.5, max_completion_tokens=7, tts={"seed": 3}
    )
    assert asked.config.parameters == {"n": 4, "temperature": 0.5, "max_tokens": 7}
    card = {"top_k": 20, "min_p": 0.1}
    assert read("best-of-n", **card, presence_penalty=0).config.parameters == card
    assert read("best-of-n", top_k=-1, min_p=0).config.parameters == {}
    assert (asked.n, asked.config.seed, asked.problem) == (4, 3, PROBLEM)
    assert read(seed=5, budget=4).config.seed == 5


def test_more_tokens_than_the_context_holds_are_as_many_as_it_holds(read, tiny_deployment):
    context = tiny_deployment.generator.max_seq_len
    for limit in (context, context + 1, 10**6):
        assert read("best-of-n", max_tokens=limit).config.parameters["max_tokens"] == context


def test_a_search_is_asked_for_as_a_run_is(read):
    options = {"n": 8, "seed": 2, "budget_tokens": 90, "deadline_s": 7}
    asked = read(named="dvts", tts=options, settings=Settings(max_n=8))
    wanted = {"strategy": "dvts", "parameters": {"n": 8}, "seed": 2, "limits": Limits(90, 7)}
    assert asked.config == RunConfig(**wanted)
    assert asked.n == 8


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"tts": {"strategy": "dvts"}}, "The model's name says best-of-n"),
        ({"budget": 2, "tts": {"n": 3}}, "different numbers"),
        ({"temperature": 1, "tts": {"parameters": {"temperature": 0}}}, "temperature is given twi"),
        ({"budget": 5}, "allows 4 completions"),
        ({"n": 2}, "How many completions it makes is tts.n"),
        ({"logprobs": True}, "logprobs has no meaning"),
        ({"presence_penalty": 1.5}, "presence_penalty has no meaning"),
        ({"continue_final_message": True}, "continue_final_message has no meaning"),
    ],
)
def test_what_no_search_can_do_or_is_said_twice_is_refused(read, fields, wrong):
    with pytest.raises(ApiError, match=wrong) as refused:
        read(named="best-of-n", settings=Settings(max_n=4), **fields)
    assert refused.value.status == 400


@pytest.mark.parametrize("named", ["schema.json", "/etc/passwd", " ~/x", "@x", "", "../{}"])
def test_no_file_of_the_servers_machine_is_read(read, named, tmp_path, monkeypatch):
    (tmp_path / "schema.json").write_text('{"type": "integer"}')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ApiError, match="reads no files"):
        read("beam-search", tts={"parameters": {"answer_schema": named}})


def test_the_deadline_is_the_least_of_all_who_wait(read):
    settings = Settings(deadline_s=60)
    announced = {b"x-stainless-read-timeout": "20"}

    def deadline_s(**fields):
        return read(settings=settings, **fields).config.limits.deadline_s

    assert deadline_s() == 60
    assert deadline_s(tts={"deadline_s": 30}) == 30
    assert deadline_s(headers=announced) == 19
    assert deadline_s(headers=announced, stream=True) == 60
    assert deadline_s(headers={b"x-stainless-timeout": "1"}) == 0.5
    for nothing in ("soon", "0", "-1", "nan"):
        assert deadline_s(headers={b"x-stainless-timeout": nothing}) == 60
