"""What a search and a score may be asked: whole conversations, within what the models can read."""

import asyncio
import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.gateway.in_process import post, serving

from tts.build.errors import CheckpointError, EndpointTimeout, EndpointUnavailable, RunError
from tts.build.tokenizer import Tokenizer
from tts.gateway.answer.prompts import LONG
from tts.gateway.database import DatabaseUnusable
from tts.gateway.openai.errors import MOST_SAID
from tts.gateway.pooling import MAX_STEPS
from tts.gateway.safety import ApiKey, FilterChain, KeyLimits
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
CHAT, TEXT, POOLING = "/v1/chat/completions", "/v1/completions", "/pooling"


@pytest.fixture
def endpoints(tokenizer_folder):
    tokenizer = Tokenizer(tokenizer_folder)
    words = [tokenizer.encode(word) for word in ("1", "22", " + ", r"\boxed{4}")]
    return {
        "generator": ScriptedGenerator(words, tokenizer.encode("\n\n")),
        "verifier": ScriptedVerifier(),
    }


@pytest.fixture
def ask(tiny_deployment, endpoints):
    """Requests, each a path and its fields, and their answers: status and JSON."""

    def asked(*requests):
        async def go():
            async with serving(tiny_deployment, endpoints) as app:
                return [
                    await post(app, path, {"model": "tiny:beam-search", **body})
                    for path, body in requests
                ]

        return asyncio.run(asyncio.wait_for(go(), 60))

    return asked


def search_of(messages, **fields):
    return CHAT, {"messages": messages, "tts": {"n": 4, "seed": 1}, **fields}


def test_a_search_of_a_conversation_is_that_of_the_session(tiny_deployment, endpoints, ask):
    conversations = PLAIN, PLAIN[1:], QUESTION
    with Session.open(tiny_deployment, **endpoints) as session:
        wanted = [session.solve(each, n=4, seed=1).tree_digest for each in conversations]
    calls = endpoints["generator"].calls
    calls.generated.clear()
    found = ask(
        search_of(TURNS),
        search_of(TURNS[1:]),
        search_of([{"role": "user", "content": QUESTION}]),
        (TEXT, {"prompt": QUESTION, "tts": {"n": 4, "seed": 1}}),
    )
    assert [status for status, _ in found] == [200] * 4
    assert [answer["tts"]["tree_digest"] for _, answer in found] == [*wanted, wanted[-1]]
    assert wanted[0] != wanted[-1]
    models = Models.load(tiny_deployment)
    prompts = {models.prompts(as_problem(each, "p"))[0].tobytes() for each in conversations}
    assert len(prompts) == 3
    assert prompts <= {ids for ids, _ in calls.generated}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (TURNS[:3], "ends with a message of the role assistant: a search answers the last message"),
        (TURNS[:1], "ends with a message of the role developer"),
        ([{"role": "user", "content": " "}], "is empty"),
        ([*TURNS[:3], {"role": "user", "content": None}], "is empty"),
    ],
)
def test_a_conversation_without_a_question_at_its_end_is_refused(ask, messages, said):
    ((status, answer),) = ask(search_of(messages))
    assert (status, answer["error"]["param"]) == (400, "messages")
    assert said in answer["error"]["message"]


def test_a_conversation_that_the_chat_template_refuses_is_the_clients_mistake(
    ask, tiny_deployment, endpoints, monkeypatch
):
    template = "{{ raise_exception('no roles here') }}"
    monkeypatch.setattr(Tokenizer, "chat_template", template)
    verifier = lambda question, steps: 0.5  # noqa: E731

    async def go():
        own = {"generator": endpoints["generator"], "verifier": verifier}
        async with serving(tiny_deployment, own) as app:
            path, body = search_of(TURNS)
            return await post(app, path, {"model": "tiny:beam-search", **body})

    status, answer = asyncio.run(go())
    assert (status, answer["error"]["param"]) == (400, "messages")
    assert "refuses this: " in answer["error"]["message"]
    assert "no roles here" in answer["error"]["message"]
    assert str(tiny_deployment.generator.checkpoint) not in answer["error"]["message"]


LAST_ONLY = "{{ messages[-1]['content'] }}"
LOST = "drops or changes message {} of 4, so the model would not see what the {} has said there."


@pytest.mark.parametrize(
    ("template", "lost"),
    [
        (LAST_ONLY, LOST.format(1, "system")),
        ("{{ messages[0]['content'] }}" + LAST_ONLY, LOST.format(2, "user")),
        (LAST_ONLY.replace("}}", "| upper }}"), LOST.format(1, "system")),
    ],
)
@pytest.mark.parametrize("to", ["a search", "a chat", "a chat that goes on", "tokens"])
def test_a_chat_template_that_loses_a_message_answers_nothing(
    tiny_deployment, endpoints, monkeypatch, template, lost, to
):
    monkeypatch.setattr(Tokenizer, "chat_template", template)
    continued = {"continue_final_message": True, "add_generation_prompt": False}
    if to == "a chat that goes on" and "upper" in template:
        lost = "changes the last message, so it cannot be continued."
    path, body = {
        "a search": search_of(TURNS, model="tiny:beam-search"),
        "a chat": (CHAT, {"model": "tiny", "messages": TURNS}),
        "a chat that goes on": (CHAT, {"model": "tiny", "messages": TURNS, **continued}),
        "tokens": ("/tokenize", {"messages": TURNS}),
    }[to]

    async def go():
        own = {"generator": endpoints["generator"], "verifier": lambda question, steps: 0.5}
        async with serving(tiny_deployment, own) as app:
            return await post(app, path, body)

    status, answer = asyncio.run(go())
    assert (status, answer["error"]["message"]) == (400, f"The model's chat template {lost}")


def test_a_model_without_a_chat_template_can_be_asked_for_completions(
    tiny_deployment, endpoints, monkeypatch
):
    def missing(tokenizer):
        raise CheckpointError(f"{tokenizer.checkpoint} has no chat template.")

    monkeypatch.setattr(Tokenizer, "chat_template", property(missing))

    async def go():
        own = {"generator": endpoints["generator"], "verifier": lambda question, steps: 0.5}
        async with serving(tiny_deployment, own) as app:
            return await post(app, CHAT, {"model": "tiny", "messages": TURNS})

    status, answer = asyncio.run(go())
    assert status == 400
    assert (
        "is missing, or cannot be read: send prompts to /v1/completions."
        in (answer["error"]["message"])
    )


def test_filters_see_every_message_of_a_conversation(tiny_deployment, endpoints, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("- {term: german}\n- {term: nine, action: redact}\n- {term: '9.'}\n")
    filters = FilterChain.load(rules)
    redacted = [*TURNS[3:], {"role": "assistant", "content": "Nine?"}, *TURNS[3:]]
    prompt = as_problem(
        [
            PLAIN[3],
            {"role": "assistant", "content": filters.input("Nine?")},
            PLAIN[3],
        ],
        "p",
    )

    async def go():
        async with serving(tiny_deployment, endpoints, filters) as app:
            return [
                await post(app, path, {"model": "tiny:beam-search", **body})
                for path, body in (
                    search_of(TURNS),
                    search_of(TURNS[1:]),
                    answered("4", TURNS[1:]),
                    search_of(redacted),
                )
            ]

    *refused, (status, _) = asyncio.run(go())
    assert [(code, answer["error"]["code"]) for code, answer in refused] == [
        (400, "content_filter")
    ] * 3
    assert status == 200
    ids = Models.load(tiny_deployment).prompts(prompt)[0].tobytes()
    assert ids in {ids for ids, _ in endpoints["generator"].calls.generated}


def answered(text, turns=TURNS):
    return POOLING, {"messages": [*turns, {"role": "assistant", "content": text}]}


def test_steps_are_scored_after_a_whole_conversation(tiny_deployment, endpoints, ask):
    steps = ["2 + 2 = 4", "So it is 4."]
    with Session.open(tiny_deployment, **endpoints) as session:
        wanted = session.score(PLAIN, steps)
    ((status, answer),) = ask(answered("\n\n".join(steps)))
    assert status == 200
    assert [right for _, right in answer["data"][0]["data"]] == wanted
    assert answer["usage"]["prompt_tokens"] == max(map(len, endpoints["verifier"].calls.scored)) / 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("7 " * 400, "tokens, {over} more than the 319 that its context leaves for a prompt"),
        ("\n\n".join(["7 7 7"] * 80), "too long for the verifier: "),
        ("7 " * 100_000, "200,032 characters, 194,592 more than that many of its longest tokens"),
        ("7\n\n" * (MAX_STEPS + 1), f"has 1,025 steps; 1 to {MAX_STEPS:,} can be scored"),
        (" ", "has 0 steps"),
    ],
    ids=["one step", "many steps", "a book", "steps without end", "nothing"],
)
def test_what_the_verifier_cannot_read_is_refused_before_anything_is_sent(
    tiny_deployment, endpoints, ask, text, said
):
    ((status, answer),) = ask(answered(text))
    message = answer["error"]["message"]
    assert (status, answer["error"]["param"]) == (400, "messages")
    if "{over}" in said:
        tokens = int(message.partition("verifier: ")[2].partition(" tokens")[0].replace(",", ""))
        said = said.format(over=tokens - 319)
    assert said in message
    assert not endpoints["verifier"].calls.scored


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "assistant", "content": "4"}],
        [{"role": "system", "content": "x"}, {"role": "assistant", "content": "4"}],
        [{"role": "user", "content": "2 + 2"}],
    ],
)
def test_steps_without_a_question_are_not_scored(ask, messages):
    ((status, answer),) = ask((POOLING, {"messages": messages}))
    assert status == 400
    assert "a verifier judges the steps of one answer" in answer["error"]["message"]


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

    async def go():
        async with serving(tiny_deployment, endpoints) as app:
            long = asyncio.ensure_future(post(app, "/tokenize", said))
            assert await asyncio.to_thread(began.wait, 30)
            short = await post(app, "/tokenize", {"prompt": "7"})
            served.set()
            return short, await long

    (short, answer), (status, whole) = asyncio.run(go())
    assert (short, answer["count"]) == (200, 1)
    assert (status, whole["count"] > LONG) == (200, True)


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/metrics", "/"])
def test_without_keys_a_page_under_another_name_reads_nothing(tiny_deployment, endpoints, path):
    async def go():
        async with serving(tiny_deployment, endpoints) as app:
            return await post(app, path, None, "GET", host="evil.example:8080")

    status, answer = asyncio.run(go())
    assert (status, answer["error"]["code"]) == (403, "host_not_allowed")


def test_a_search_is_charged_its_prompt_and_what_it_may_generate(tiny_deployment, endpoints):
    path, body = search_of(PLAIN[3:], model="tiny:beam-search")
    body["tts"]["budget_tokens"] = 50

    async def go(limit):
        key = ApiKey("k", "k", KeyLimits(tokens_per_minute=limit), 0.0, None)
        keyring = SimpleNamespace(required=True, find=lambda said: key)
        async with serving(tiny_deployment, endpoints, keyring=keyring) as app:
            return await post(app, path, body, authorization="Bearer k")

    status, answer = asyncio.run(go(1_000_000))
    assert status == 200
    most = answer["usage"]["prompt_tokens"] + 50
    assert asyncio.run(go(most))[0] == 200
    assert asyncio.run(go(most - 1))[0] == 429


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": "1"}),
        ("/detokenize", {"tokens": [1]}),
    ],
)
def test_what_needs_no_engine_is_a_request_like_any_other(tiny_deployment, endpoints, path, body):
    key = ApiKey("k", "k", KeyLimits(requests_per_minute=1), 0.0, None)
    keyring = SimpleNamespace(required=True, find=lambda said: key)

    async def go():
        async with serving(tiny_deployment, endpoints, keyring=keyring) as app:
            return [await post(app, path, body, authorization="Bearer k") for _ in range(2)]

    assert [status for status, _ in asyncio.run(go())] == [200, 429]


def test_scores_are_no_searches(tiny_deployment, endpoints):
    key = ApiKey("k", "k", KeyLimits(concurrent_searches=0), 0.0, None)
    keyring = SimpleNamespace(required=True, find=lambda said: key)
    said = [*PLAIN, {"role": "assistant", "content": "It is 4."}]

    async def go(path, body):
        async with serving(tiny_deployment, endpoints, keyring=keyring) as app:
            return (await post(app, path, body, authorization="Bearer k"))[0]

    assert asyncio.run(go(POOLING, {"model": "tiny", "messages": said})) == 200
    path, body = search_of(PLAIN, model="tiny:best-of-n")
    assert asyncio.run(go(path, body)) == 429


def test_a_key_that_is_missing_or_wrong_is_a_status_of_its_own(tiny_deployment, endpoints):
    keyring = SimpleNamespace(required=True, find=lambda said: None)

    async def go(**headers):
        async with serving(tiny_deployment, endpoints, keyring=keyring) as app:
            return await post(app, "/tokenize", {"prompt": "1"}, **headers)

    for headers, said in (({}, "is needed"), ({"authorization": "Bearer k"}, "is not valid")):
        status, answer = asyncio.run(go(**headers))
        assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
        assert said in answer["error"]["message"]


def test_a_body_may_have_four_mebibytes(tiny_deployment, endpoints):
    """As its documentation says."""

    async def go(size):
        async with serving(tiny_deployment, endpoints) as app:
            return (await post(app, "/detokenize", "x" * (size - 2)))[0]  # with quotes around it

    assert asyncio.run(go(4 * 2**20)) == 400  # read, and not what is wanted
    assert asyncio.run(go(4 * 2**20 + 1)) == 413


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EndpointUnavailable("unix:/run/user/0/tts/tiny.sock is gone"), 503, "engine_unavailable"),
        (EndpointTimeout("/run/user/0 did not answer"), 504, "engine_timeout"),
        (RunError("/home/someone/runs cannot be written"), 500, None),
        (
            DatabaseUnusable("The keys in /home/someone/gateway.db cannot be used"),
            503,
            "keys_unusable",
        ),
    ],
)
def test_what_is_wrong_on_this_side_is_told_to_its_log_alone(
    tiny_deployment, endpoints, monkeypatch, caplog, error, status, code
):
    class Keys:
        @property
        def required(self):
            raise error

    async def go():
        async with serving(tiny_deployment, endpoints, keyring=Keys()) as app:
            return await post(app, "/v1/models", None, "GET")

    found, answer = asyncio.run(go())
    assert (found, answer["error"]["code"]) == (status, code)
    assert "/" not in answer["error"]["message"]
    assert str(error) in caplog.text


def test_scores_are_shown_without_the_noise_of_binary_fractions(tiny_deployment, endpoints):
    assert quantise(0.8542) != 0.8542
    path, body = search_of(PLAIN[3:], model="tiny:best-of-n")

    async def go():
        own = {"generator": endpoints["generator"], "verifier": lambda question, steps: 0.8542}
        async with serving(tiny_deployment, own) as app:
            return await post(app, path, body), await post(app, path, body | {"stream": True})

    (status, answer), (streamed, events) = asyncio.run(go())
    assert (status, streamed) == (200, 200)
    assert answer["tts"]["score"] == 0.8542
    assert '"score":0.8542}' in events
    assert "0.8542000" not in events
    chunks = [json.loads(line[6:]) for line in events.split("\n") if line.startswith("data: {")]
    assert {choice["index"] for chunk in chunks for choice in chunk["choices"]} == {0}
    told = [step for chunk in chunks for step in chunk.get("tts", {}).get("steps", ())]
    assert any(step.get("text") for step in told)


def test_the_seconds_of_a_search_have_no_noise_of_binary_fractions(
    tiny_deployment, endpoints, monkeypatch
):
    solve = AsyncSession.solve_planned

    async def took(session, plan):
        result = await solve(session, plan)
        return replace(result, usage=replace(result.usage, seconds=0.8542010000000001))

    monkeypatch.setattr(AsyncSession, "solve_planned", took)

    async def go():
        path, body = search_of(PLAIN[3:], model="tiny:best-of-n")
        body["stream_options"] = {"include_usage": True}
        async with serving(tiny_deployment, endpoints) as app:
            return await post(app, path, body), await post(app, path, body | {"stream": True})

    (status, answer), (streamed, events) = asyncio.run(go())
    assert (status, streamed) == (200, 200)
    assert answer["usage"]["tts"]["seconds"] == 0.854201
    assert '"seconds":0.854201}' in events


def test_what_is_wrong_with_parameters_is_said_to_the_end(ask):
    words = "no number " * 100
    ((status, answer),) = ask(search_of(PLAIN[3:], tts={"parameters": {"top_p": words}}))
    assert status == 400
    value, _, reason = answer["error"]["message"].partition("top_p = ")[2].partition("...: ")
    assert words.startswith(value[1:] + " ")
    assert len(value) > 150
    assert reason.startswith("Input should be a valid number")


def test_an_error_does_not_repeat_megabytes(ask):
    endless = "x" * 1_000_000
    named, unknown, wrong = ask(
        search_of(PLAIN[3:], tts={"parameters": {endless: 1}}),
        (CHAT, {"messages": PLAIN, "model": "a name of words " * 100}),
        (CHAT, {"messages": PLAIN, "tts": {endless: 1}}),
    )
    for status, answer in (named, wrong):
        assert status == 400
        assert len(answer["error"]["message"]) <= MOST_SAID + len("...")
        assert answer["error"]["message"].endswith("...")
    message = unknown[1]["error"]["message"]
    assert unknown[0] == 404
    assert message.startswith("The model 'a name of words a name")
    assert message.partition("...")[0].rpartition(" ")[2] in ("a", "name", "of", "words")
    assert message.endswith("... is not served here; GET /v1/models lists those that are.")
