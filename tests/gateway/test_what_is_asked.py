"""What a search and a score may be asked: whole conversations, within what the models can read."""

import asyncio
import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.gateway.in_process import CHAT, KEY, POOLING, TEXT, chunks_of, key_ring, post, run

from tts.base.errors import (
    CheckpointError,
    EndpointTimeout,
    EndpointUnavailable,
    RequestRefused,
    RunError,
    ServerError,
)
from tts.build import chat_template, tokenizer
from tts.build.tokenizer import Tokenizer
from tts.gateway.answer.prompts import LONG
from tts.gateway.database import DatabaseUnusable
from tts.gateway.openai.errors import MAX_MESSAGE, MAX_QUOTE
from tts.gateway.safety.limits import WRONG_KEYS_PER_MINUTE, KeyLimits
from tts.prompting import Models
from tts.search import quantise
from tts.session import AsyncSession, Session
from tts.session.questions import as_problem

QUESTION = "Compute 2 + 2."
TURNS = [
    {"role": "developer", "content": "Answer in German."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Compute "}, {"type": "text", "text": "9."}],
    },
    {"role": "assistant", "content": "It is 9."},
    {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
]
PLAIN = [
    {"role": "system", "content": "Answer in German."},
    {"role": "user", "content": "Compute 9."},
    {"role": "assistant", "content": "It is 9."},
    {"role": "user", "content": QUESTION},
]


def search_of(messages, **fields):
    model = {"model": "tiny:beam-search"}
    return CHAT, {**model, "messages": messages, "tts": {"n": 4, "seed": 1}, **fields}


def score_of(text, turns=TURNS):
    return POOLING, {"model": "tiny", "messages": [*turns, {"role": "assistant", "content": text}]}


@pytest.fixture
def by_function(endpoints):
    """The scripted pair, of which the verifier reads no chat."""
    endpoints["verifier"] = lambda question, steps: 0.8542
    return endpoints


def test_a_search_of_a_conversation_is_that_of_the_session(tiny_deployment, endpoints, ask):
    conversations = PLAIN, PLAIN[1:], QUESTION
    with Session.open(tiny_deployment, **endpoints) as session:
        wanted = [session.solve(each, n=4, seed=1).tree_digest for each in conversations]
    calls = endpoints["generator"].calls
    calls.generated.clear()
    text = {"model": "tiny:beam-search", "prompt": QUESTION, "tts": {"n": 4, "seed": 1}}
    asked = (TURNS, TURNS[1:], [{"role": "user", "content": QUESTION}])
    found = ask(*map(search_of, asked), (TEXT, text))
    assert [status for status, _ in found] == [200] * 4
    assert [answer["tts"]["tree_digest"] for _, answer in found] == [*wanted, wanted[-1]]
    assert wanted[0] != wanted[-1]
    models = Models.load(tiny_deployment)
    prompts = {models.prompts(as_problem(each, "p"))[0].tobytes() for each in conversations}
    assert len(prompts) == 3
    assert prompts <= {ids for ids, _ in calls.generated}


NO_QUESTION = "a verifier judges the steps of one answer"


@pytest.mark.parametrize(
    ("path", "messages", "said"),
    [
        (CHAT, TURNS[:3], "ends with a message of the role assistant: a search answers the last"),
        (CHAT, TURNS[:1], "ends with a message of the role developer"),
        (CHAT, [{"role": "user", "content": " "}], "is empty"),
        (CHAT, [*TURNS[:3], {"role": "user", "content": None}], "is empty"),
        (POOLING, TURNS[2:3], NO_QUESTION),
        (POOLING, [*TURNS[:1], *TURNS[2:3]], NO_QUESTION),
        (POOLING, TURNS[3:], NO_QUESTION),
    ],
)
def test_a_conversation_without_a_question_in_its_place_is_refused(ask, path, messages, said):
    ((status, answer),) = ask((path, search_of(messages)[1]))
    assert (status, answer["error"]["param"]) == (400, "messages")
    assert said in answer["error"]["message"]


LAST_ONLY = "{{ messages[-1]['content'] }}"
LOST = "drops or changes message {} of 4, so the model would not see what the {} has said there."
REFUSES = "refuses this: no roles here"


@pytest.mark.parametrize(
    ("template", "lost"),
    [
        (LAST_ONLY, LOST.format(1, "system")),
        ("{{ messages[0]['content'] }}" + LAST_ONLY, LOST.format(2, "user")),
        (LAST_ONLY.replace("}}", "| upper }}"), LOST.format(1, "system")),
        ("{{ raise_exception('no roles here') }}", REFUSES),
        (None, "is missing, or cannot be read: send prompts to /v1/completions."),
    ],
)
@pytest.mark.parametrize("to", ["a search", "a chat", "a chat that goes on", "tokens"])
def test_a_chat_template_that_loses_or_refuses_a_message_answers_nothing(
    ask, by_function, monkeypatch, template, lost, to
):
    def missing(tokenizer):
        raise CheckpointError(f"{tokenizer.checkpoint} has no chat template.")

    monkeypatch.setattr(Tokenizer, "chat_template", template or property(missing))
    continued = {"continue_final_message": True, "add_generation_prompt": False}
    if to == "a chat that goes on" and template and "upper" in template:
        lost = "changes the last message, so it cannot be continued."
    request = {
        "a search": search_of(TURNS),
        "a chat": (CHAT, {"model": "tiny", "messages": TURNS}),
        "a chat that goes on": (CHAT, {"model": "tiny", "messages": TURNS, **continued}),
        "tokens": ("/tokenize", {"messages": TURNS}),
    }[to]
    ((status, answer),) = ask(request)
    told = answer["error"]
    assert (status, told["param"]) == (
        400,
        "continue_final_message" if "cannot be continued" in lost else "messages",
    )
    assert told["message"].rstrip(".") == f"The model's chat template {lost}".rstrip(".")


def test_filters_see_every_message_of_a_conversation(
    tiny_deployment, endpoints, ask, filters_of, tokenizer
):
    filters = filters_of("- {term: german}\n- {term: nine, action: redact}\n- {term: '9.'}\n")
    nine = {"role": "assistant", "content": "Nine?"}
    *refused, (status, _) = ask(
        search_of(TURNS),
        search_of(TURNS[1:]),
        score_of("4", TURNS[1:]),
        search_of([*TURNS[3:], nine, *TURNS[3:]]),
        filters=filters,
    )
    codes = [(code, answer["error"]["code"]) for code, answer in refused]
    assert codes == [(400, "content_filter")] * 3
    assert status == 200
    # token ids cannot be redacted, and log-probabilities would tell what was
    texts = [("Nine?", 200), (tokenizer.encode("Nine?"), 400), (tokenizer.encode("is 9."), 400)]
    requests = [(TEXT, {"model": "tiny", "prompt": text, "max_tokens": 1}) for text, _ in texts]
    found = ask(*requests, filters=filters)
    assert [code for code, _ in found] == [code for _, code in texts]
    assert {said["error"]["code"] for _, said in found[1:]} == {"content_filter"}
    logs = CHAT, {"model": "tiny", "messages": PLAIN[3:], "logprobs": True}
    ((status, told),) = ask(logs, filters=filters)
    assert (status, told["error"]["param"]) == (400, "logprobs")
    redacted = [PLAIN[3], {**nine, "content": filters.prompt().whole("Nine?")}, PLAIN[3]]
    ids = Models.load(tiny_deployment).prompts(as_problem(redacted, "p"))[0].tobytes()
    assert ids in {ids for ids, _ in endpoints["generator"].calls.generated}


@pytest.mark.parametrize(
    "request_of",
    [
        lambda text, ids: (TEXT, {"prompt": text}),
        lambda text, ids: (TEXT, {"prompt": ids}),
        lambda text, ids: (CHAT, {"messages": [{"role": "user", "content": text}]}),
        lambda text, ids: search_of([{"role": "user", "content": text}]),
    ],
    ids=["text", "token ids", "chat", "search"],
)
def test_a_prompt_leaves_room_for_a_token_of_the_answer(ask, tokenizer, request_of):
    for text in ("7 " * 400, "7 " * 100_000):
        path, body = request_of(text, tokenizer.encode(text[:1000]))
        ((status, answer),) = ask((path, {"model": "tiny", **body}))
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
        if len(text) < 1000 and path == TEXT:
            tokens = len(tokenizer.encode(text))
            assert f"resulted in {tokens} tokens" in answer["error"]["message"]


@pytest.mark.parametrize("chat", [True, False], ids=["chat", "text"])
def test_others_are_served_while_a_long_text_is_tokenised(
    tiny_deployment, endpoints, monkeypatch, chat
):
    began, served = threading.Event(), threading.Event()
    encode = Tokenizer.encode

    def slow(tokenizer, text):
        if len(text) > LONG:
            began.set()
            assert served.wait(30), "the event loop waits for the tokenizer"
        return encode(tokenizer, text)

    monkeypatch.setattr(Tokenizer, "encode", slow)
    text = "7 " * (LONG // 2 + 1)
    said = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}

    async def work(app):
        long = asyncio.ensure_future(post(app, "/tokenize", said))
        assert await asyncio.to_thread(began.wait, 30)
        short = await post(app, "/tokenize", {"prompt": "7"})
        served.set()
        return short, await long

    (short, answer), (status, whole) = run(work, tiny_deployment, endpoints)
    assert (short, answer["count"]) == (200, 1)
    assert (status, whole["count"] > LONG) == (200, True)


def test_chats_that_come_together_are_read_together_and_fail_alone(
    tiny_deployment, endpoints, monkeypatch
):
    exchanges, render = [], chat_template.render

    def noted(source, *chats):
        exchanges.append([chat["messages"][-1]["content"] for chat in chats])
        if "bad" in exchanges[-1]:
            raise chat_template.TemplateFailed("no", "failed")
        return render(source, *chats)

    def chat(text):
        return {"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": text}]}

    async def work(app):
        await post(app, CHAT, chat("warm"))
        monkeypatch.setattr(tokenizer, "render", noted)
        for texts in (("one", "two"), ("three", "bad"), ("four", long)):
            answers = await asyncio.gather(*(post(app, CHAT, chat(text)) for text in texts))
            statuses.append([status for status, _ in answers])
            counts.append([said["usage"]["prompt_tokens"] for status, said in answers[:1]])
        return [(await post(app, CHAT, chat(text)))[1] for text in ("one", "three", "four", long)]

    statuses, counts, long = [], [], "7 " * 1000
    *alone, refused = run(work, tiny_deployment, endpoints)
    assert statuses == [[200, 200], [200, 400], [200, 400]]
    assert [count for (count,) in counts] == [said["usage"]["prompt_tokens"] for said in alone]
    assert refused["error"]["code"] == "context_length_exceeded"
    assert exchanges[:5] == [["one", "two"], ["three", "bad"], ["three"], ["bad"], ["four", long]]


def test_a_search_is_charged_its_prompt_and_what_it_may_generate(ask):
    path, body = search_of(PLAIN[3:], tts={"n": 4, "seed": 1, "budget_tokens": 50})

    def charged(limit):
        keyring = key_ring(KeyLimits(tokens_per_minute=limit))
        return ask((path, body, KEY), keyring=keyring)[0]

    status, answer = charged(1_000_000)
    assert status == 200
    most = answer["usage"]["prompt_tokens"] + 50
    assert [charged(limit)[0] for limit in (most, most - 1)] == [200, 429]


@pytest.mark.parametrize(
    ("limits", "requests", "statuses"),
    [
        ({"requests_per_minute": 1}, [("/tokenize", {"prompt": "1"})] * 2, [200, 429]),
        ({"requests_per_minute": 1}, [("/detokenize", {"tokens": [1]})] * 2, [200, 429]),
        ({"concurrent_searches": 0}, [score_of("It is 4."), search_of(PLAIN)], [200, 429]),
    ],
    ids=["tokenize", "detokenize", "scores are no searches"],
)
def test_what_needs_no_engine_or_is_no_search_is_a_request_like_any_other(
    ask, limits, requests, statuses
):
    found = ask(*((*each, KEY) for each in requests), keyring=key_ring(KeyLimits(**limits)))
    assert [status for status, _ in found] == statuses


def test_a_key_that_is_missing_or_wrong_is_a_status_of_its_own(ask):
    keyring = SimpleNamespace(required=True, find=lambda said: None)
    found = ask(*(("/tokenize", {"prompt": "1"}, given) for given in ({}, KEY)), keyring=keyring)
    for (status, answer), said in zip(found, ("is needed", "is not valid"), strict=True):
        assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
        assert said in answer["error"]["message"]


def test_wrong_keys_from_an_address_are_refused_after_some_and_right_ones_are_not(ask):
    right = key_ring()
    keyring = SimpleNamespace(
        required=True, find=lambda secret: right.find(secret) if secret == "k" else None
    )
    tokens, wrong = ("/tokenize", {"prompt": "1"}), {"authorization": "Bearer wrong"}
    requests = *[(*tokens, wrong)] * (WRONG_KEYS_PER_MINUTE + 1), (*tokens, KEY)
    *answers, (status, last), (right_status, _) = ask(*requests, keyring=keyring)
    assert {status for status, _ in answers} == {401}
    assert (status, last["error"]["code"], right_status) == (429, "too_many_wrong_keys", 200)


def test_a_body_may_have_four_mebibytes(ask):
    """As its documentation says; it is a text with quotes around it, and not what is wanted."""
    sizes = (4 * 2**20, 4 * 2**20 + 1)
    found = ask(*(("/detokenize", "x" * (size - 2)) for size in sizes))
    assert [status for status, _ in found] == [400, 413]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EndpointUnavailable("unix:/run/user/0/tts/tiny.sock is gone"), 503, "engine_unavailable"),
        (ServerError("/usr/bin/tritonserver has died."), 503, "engine_unavailable"),
        (EndpointTimeout("/run/user/0 did not answer"), 504, "engine_timeout"),
        (RunError("/home/someone/runs cannot be written"), 500, None),
        (DatabaseUnusable("/home/someone/gateway.db cannot be used"), 503, "keys_unusable"),
        (ValueError("/home/someone is a bug"), 500, None),
        (RequestRefused("too long"), 400, None),
    ],
)
def test_what_is_wrong_on_this_side_is_told_to_its_log_alone(ask, caplog, error, status, code):
    class Keys:
        @property
        def required(self):
            raise error

    ((found, headers, said),) = ask(("/v1/models",), keyring=Keys(), whole=True)
    told = json.loads(said)["error"]
    assert (found, told["code"]) == (status, code)
    assert "/" not in told["message"]
    assert (str(error) in caplog.text) == (status >= 500)
    assert (int(headers.get("retry-after", 0)) >= 1) == (code == "engine_unavailable")


def test_scores_and_seconds_are_shown_without_the_noise_of_binary_fractions(
    ask, by_function, monkeypatch
):
    assert quantise(0.8542) != 0.8542
    solve = AsyncSession.solve_planned

    async def took(session, plan):
        result = await solve(session, plan)
        return replace(result, usage=replace(result.usage, seconds=0.8542010000000001))

    monkeypatch.setattr(AsyncSession, "solve_planned", took)
    counted = {"stream_options": {"include_usage": True}}
    path, body = search_of(PLAIN[3:], model="tiny:best-of-n", **counted)
    (status, answer), (streamed, events) = ask((path, body), (path, body | {"stream": True}))
    assert (status, streamed) == (200, 200)
    assert answer["tts"]["score"] == 0.8542
    assert answer["tts"]["gateway_ms"] > 0
    assert answer["usage"]["tts"]["seconds"] == 0.854201
    assert '"seconds":0.854201}' in events
    assert '"score":0.8542}' in events
    assert "0.8542000" not in events
    chunks = chunks_of(events)
    assert {choice["index"] for chunk in chunks for choice in chunk["choices"]} == {0}
    told = [step for chunk in chunks for step in chunk.get("tts", {}).get("steps", ())]
    assert any(step.get("text") for step in told)


def test_an_error_does_not_repeat_megabytes(ask):
    endless = "x " * 500_000
    found = ask(
        search_of(PLAIN, tts={"parameters": {endless: 1}}),
        search_of(PLAIN, tts={endless: 1}),
        search_of(PLAIN, model=endless),
    )
    assert [status for status, _ in found] == [400, 400, 404]
    lengths = []
    for _, answer in found:
        said = answer["error"]["message"]
        assert said.partition("...")[0].endswith(" x")  # up to the last word that fits
        lengths.append(len(said))
    assert 0.9 * MAX_MESSAGE < lengths[0] <= MAX_MESSAGE + len("...")
    assert MAX_QUOTE < lengths[2] < 2 * MAX_QUOTE
