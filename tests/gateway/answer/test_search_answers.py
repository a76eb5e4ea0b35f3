"""The text of a search's answer: where it ends, and what it is told to be doubtful."""

import asyncio
import json

import pytest
from tests.gateway.answer.test_candidates import Kept
from tests.gateway.answer.test_tools import Says
from tests.gateway.in_process import post, serving

from tts.build.tokenizer import Tokenizer
from tts.endpoints.base import NewTokens

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
QUESTION = {"role": "user", "content": "Compute 2 + 3."}
ANSWER = r"First 2 + 3. Observation: it is \boxed{5}."
ASKED = {
    CHAT: {"messages": [QUESTION]},
    TEXT: {"prompt": QUESTION["content"]},
    RESPONSES: {"input": QUESTION["content"]},
}
SCORE = {
    "type": "object",
    "properties": {"score": {"type": "integer", "minimum": 0}},
    "required": ["score"],
}


@pytest.fixture
def ask(tiny_deployment, tokenizer_folder):
    """Answers, the generator, and the records of the requests."""

    def asked(say, *requests, kind=Says):
        update = {"guided_decoding": True, "max_seq_len": 512}
        generator = tiny_deployment.generator.model_copy(update=update)
        deployment = tiny_deployment.model_copy(update={"generator": generator})
        says, kept = kind(Tokenizer(tokenizer_folder), say), Kept()

        async def go():
            endpoints = {"generator": says, "verifier": lambda question, steps: 0.9}
            async with serving(deployment, endpoints, recorder=kept) as app:
                return [
                    await post(app, path, {"model": "tiny:beam-search", **body})
                    for path, body in requests
                ]

        return asyncio.run(asyncio.wait_for(go(), 60)), says, kept.ended

    return asked


def text_of(path, answer):
    """Text and end of an answer, whole or streamed."""
    status, said = answer
    assert status == 200, said
    chunks = [said]
    if isinstance(said, str):
        data = [line.removeprefix("data: ") for line in said.splitlines() if "data: {" in line]
        chunks = list(map(json.loads, data))
    if path == RESPONSES:
        if isinstance(said, str):
            told = "".join(each["delta"] for each in chunks if each["type"].endswith("text.delta"))
            said = chunks[-1]["response"]
            assert told == said["output"][-1]["content"][0]["text"]
        assert said["status"] == "completed"
        return said["output"][-1]["content"][0]["text"], "stop"
    parts = [choice for chunk in chunks for choice in chunk["choices"]]
    key = "message" if "message" in parts[0] else "delta"
    texts = [part["text"] if path == TEXT else part[key].get("content") for part in parts]
    return "".join(filter(None, texts)), parts[-1]["finish_reason"]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("strategy", ["beam-search", "majority-vote", "greedy"])
def test_an_answer_ends_at_the_first_stop_text(ask, path, streams, strategy):
    options = {} if strategy == "greedy" else {"n": 4}
    body = {
        **ASKED[path],
        "model": f"tiny:{strategy}",
        "stream": streams,
        "tts": {"progress": "none", **options},
    }
    ways = [{}, {"stop": ["it is", " Observation:"]}, {"stop": "no such text"}]
    ways.append({"stop": "2 +", "include_stop_str_in_output": True})
    answers, _, records = ask(lambda *_: ANSWER, *[(path, {**body, **way}) for way in ways])
    texts = [text_of(path, answer) for answer in answers]
    ends = [ANSWER, "First 2 + 3.", ANSWER, "First 2 +"]
    assert texts == [(end, "stop") for end in ends]
    if not streams and path != RESPONSES:  # the search and its vote are those without
        assert len({answer["tts"]["tree_digest"] for _, answer in answers}) == 1
        assert {answer["tts"]["answer"] for _, answer in answers} == {"5"}
    assert len({record.answer_tokens + record.search_tokens for record in records}) == 1


def test_a_form_of_an_answer_ends_at_a_stop_text_as_the_engine_writes_it(ask):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCORE}}
    body = {**ASKED[CHAT], "response_format": form, "tts": {"n": 4}, "stop": ["5"]}

    def say(prompt, place):
        return '{"score": 5}' if prompt.endswith("\\boxed{") else "No box in 25."

    ((status, said),), _, _ = ask(say, (CHAT, body))
    assert (status, said["choices"][0]["message"]["content"]) == (200, '{"score": ')
    assert said["choices"][0]["message"]["reasoning_content"] == "No box in 25."


class Unending(Says):
    """Says as much as it may; what it says under a form's grammar comes with a pause in it."""

    async def stream(self, call):
        prompt = self.tokenizer.spelled(call.input_ids.tolist())
        if not prompt.endswith("\\boxed{"):
            async for new in super().stream(call):
                yield new
            return
        (token,) = self.tokenizer.encode("7")
        for place in range(1, call.max_new_tokens + 1):
            if place == 10 and self.say(prompt, None) == "hang":
                await asyncio.Event().wait()
            yield NewTokens([token], [], place == call.max_new_tokens)


def test_an_answer_that_is_written_after_the_search_keeps_to_max_tokens(ask):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCORE}}
    body = {**ASKED[CHAT], "response_format": form, "tts": {"n": 4}, "max_tokens": 20}
    ((status, said),), _, (record,) = ask(lambda *_: "No box.", (CHAT, body), kind=Unending)
    assert (status, said["choices"][0]["finish_reason"]) == (200, "length")
    assert said["choices"][0]["message"]["content"] == "7" * 20
    generated = said["usage"]["completion_tokens"]
    assert generated == record.answer_tokens + record.search_tokens > 20


@pytest.mark.parametrize("streams", [False, True])
def test_an_answer_that_is_written_after_the_search_keeps_to_the_deadline(ask, streams):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCORE}}
    options = {"n": 4, "deadline_s": 1.0, "progress": "none"}
    body = {**ASKED[CHAT], "response_format": form, "tts": options, "stream": streams}

    def say(prompt, place):
        return "hang" if place is None else "No box."

    (answer, whole), _, (record, other) = ask(
        say,
        (CHAT, body),
        (CHAT, {**ASKED[CHAT], "tts": {"n": 4}}),
        kind=Unending,
    )
    error = (
        answer[1]["error"] if not streams else json.loads(answer[1].split("data: ")[-1])["error"]
    )
    assert error["code"] == "deadline_exceeded"
    assert whole[0] == 200
    assert record.answer_tokens == 9  # what came of it
    assert record.search_tokens == other.answer_tokens + other.search_tokens


NO_SYSTEM = """{% for m in messages %}{% if m.role == 'system' %}
{{ raise_exception('no such role') }}{% endif %}<|{{ m.role }}|>{{ m.content }}{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}"""


@pytest.mark.parametrize("role", ["system", "developer"])
def test_what_the_system_says_stands_before_the_question_where_there_is_no_such_role(
    ask, monkeypatch, role
):
    monkeypatch.setattr(Tokenizer, "chat_template", NO_SYSTEM)
    chat = [{"role": role, "content": "Be brief."}, QUESTION]
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    requests = [
        (CHAT, {"model": "tiny", "messages": chat}),
        (CHAT, {"model": "tiny", "messages": chat, "stream": True}),
        (CHAT, {"model": "tiny", "messages": chat, "tools": [tool], "tool_choice": "none"}),
        (CHAT, {"model": "tiny", "messages": chat, "tools": [tool]}),
        (RESPONSES, {"model": "tiny", "input": [QUESTION], "instructions": "Be brief."}),
        (CHAT, {"messages": chat, "tts": {"n": 4}}),
        (RESPONSES, {"input": chat, "tts": {"n": 4}}),
    ]
    answers, says, _ = ask(lambda *_: ANSWER, *requests)
    assert [status for status, _ in answers] == [200] * len(answers)
    said = f"<|user|>Be brief.\n\n{QUESTION['content']}"
    plain = [prompt for prompt in says.prompts if said in prompt]
    with_tools = [
        prompt
        for prompt in says.prompts
        if "<|user|>Be brief.\n\nYou have these tools" in prompt and QUESTION["content"] in prompt
    ]
    assert (len(with_tools), len(plain)) == (1, len(says.prompts) - 1)
    (warning,) = answers[5][1]["tts"]["warnings"]
    assert "no system role" in warning


def test_a_template_with_a_system_role_is_given_it_without_a_warning(ask):
    chat = [{"role": "system", "content": "Be brief."}, QUESTION]
    ((_, said),), says, _ = ask(lambda *_: ANSWER, (CHAT, {"messages": chat, "tts": {"n": 4}}))
    assert said["tts"]["warnings"] == []
    assert "Be brief.\n\n" not in says.prompts[0]
