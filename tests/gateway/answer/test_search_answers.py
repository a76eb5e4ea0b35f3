"""The text of a search's answer: where it ends, and what it is told to be doubtful."""

import asyncio
from unittest.mock import ANY

import pytest
from tests.gateway.in_process import (
    CHAT,
    RESPONSES,
    TEXT,
    Kept,
    Says,
    choice_of,
    chunks_of,
)

from tts.build.tokenizer import Tokenizer
from tts.endpoints.streaming import NewTokens

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
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCORE}}


@pytest.fixture
def ask(ask_model):
    """Answers, the generator, and the records of the requests."""

    def asked(say, *requests, **options):
        kept = Kept(keeps_prompts=True)
        requests = ((path, {"model": "tiny:beam-search", **body}) for path, body in requests)
        return *ask_model(say, *requests, recorder=kept, **options), kept.ended

    return asked


def text_of(path, answer):
    """Text and end of an answer, whole or streamed."""
    if path == CHAT:
        message, finish = choice_of(answer)
        return message["content"], finish
    status, said = answer
    assert status == 200, said
    chunks = chunks_of(said) if isinstance(said, str) else [said]
    if path == TEXT:
        parts = [choice for chunk in chunks for choice in chunk["choices"]]
        return "".join(part["text"] for part in parts), parts[-1]["finish_reason"]
    whole = chunks[-1].get("response", said)
    text = whole["output"][-1]["content"][0]["text"]
    told = [each["delta"] for each in chunks if each.get("type", "").endswith("text.delta")]
    assert "".join(told) == (text if isinstance(said, str) else "")
    assert whole["status"] == "completed"
    return text, "stop"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("strategy", ["beam-search", "majority-vote", "greedy"])
def test_an_answer_ends_at_the_first_stop_text(ask, path, streams, strategy):
    options = {} if strategy == "greedy" else {"n": 4}
    body = {**ASKED[path], "model": f"tiny:{strategy}", "stream": streams}
    body["tts"] = {"progress": "none", **options}
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
    body = {**ASKED[CHAT], "response_format": FORM, "tts": {"n": 4}, "stop": ["5"]}

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
    body = {**ASKED[CHAT], "response_format": FORM, "tts": {"n": 4}, "max_tokens": 20}
    ((status, said),), _, (record,) = ask(lambda *_: "No box.", (CHAT, body), kind=Unending)
    assert (status, said["choices"][0]["finish_reason"]) == (200, "length")
    assert said["choices"][0]["message"]["content"] == "7" * 20
    generated = said["usage"]["completion_tokens"]
    assert generated == record.answer_tokens + record.search_tokens > 20


@pytest.mark.parametrize("streams", [False, True])
def test_an_answer_that_is_written_after_the_search_keeps_to_the_deadline(ask, streams):
    options = {"n": 4, "deadline_s": 1.0, "progress": "none"}
    body = {**ASKED[CHAT], "response_format": FORM, "tts": options, "stream": streams}

    def say(prompt, place):
        return "hang" if place is None else "No box."

    other = CHAT, {**ASKED[CHAT], "tts": {"n": 4}}
    ((_, answer), whole), _, (record, other) = ask(say, (CHAT, body), other, kind=Unending)
    told = chunks_of(answer)[-1] if streams else answer
    assert told["error"]["code"] == "deadline_exceeded"
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
    told = "<|user|>Be brief.\n\nYou have these tools"
    (with_tools,) = [prompt for prompt in says.prompts if told in prompt]
    assert QUESTION["content"] in with_tools
    assert len(plain) == len(says.prompts) - 1
    (warning,) = answers[5][1]["tts"]["warnings"]
    assert "no system role" in warning


def test_a_template_with_a_system_role_is_given_it_without_a_warning(ask):
    chat = [{"role": "system", "content": "Be brief."}, QUESTION]
    ((_, said),), says, _ = ask(lambda *_: ANSWER, (CHAT, {"messages": chat, "tts": {"n": 4}}))
    assert said["tts"]["warnings"] == []
    assert "Be brief.\n\n" not in says.prompts[0]


@pytest.mark.parametrize("strategy", ["best-of-n", "auto"])
def test_a_search_of_equal_chains_is_warned_of(ask, strategy):
    body = {"model": f"tiny:{strategy}", "messages": [QUESTION], "temperature": 0, "tts": {"n": 4}}
    ((_, said),), *_ = ask(lambda *_: ANSWER, (CHAT, body))
    (warning,) = said["tts"]["warnings"]
    assert "temperature is 0" in warning


def test_a_search_that_ends_without_any_completion_is_an_error(ask):
    body = {**ASKED[CHAT], "tts": {"n": 4, "budget_tokens": 2}}
    ((status, said),), _, (record,) = ask(lambda *_: "First 2 + 3. " * 9, (CHAT, body))
    assert (status, said["error"]["code"]) == (504, "no_completion")
    assert record.outcome == "failed"


def test_candidates_are_told_to_whom_asks_for_more_than_the_answer(ask):
    body = {**ASKED[CHAT], "model": "tiny:majority-vote", "tts": {"n": 4}}
    body["return_response_only"] = False
    ((_, said),), _, _ = ask(lambda _, place: r"\boxed{5}" if place else r"\boxed{6}", (CHAT, body))
    told = said["metadata"]
    assert (told["algorithm"], told["response_counts"]) == ("majority-vote", {"5": 3, "6": 1})
    chosen = {"role": "assistant", "content": r"\boxed{5}"}
    assert told["all_responses"][told["selected_index"]] == chosen


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("progress", ["steps", "reasoning", "none"])
def test_a_stream_tells_of_steps_what_is_asked_and_the_filters_let_pass(
    ask, filters_of, progress, hidden
):
    rules = "- {term: observation, action: redact, applies_to: output}\n"
    filters = filters_of(rules) if hidden else None
    body = {**ASKED[CHAT], "stream": True, "tts": {"n": 4, "progress": progress}}
    (answer,), _, _ = ask(lambda *_: ANSWER, (CHAT, body), filters=filters)
    chunks = chunks_of(answer[1])
    told = [chunk["tts"] for chunk in chunks if "tts" in chunk]
    steps = [step for each in told for step in each.get("steps", ())]
    assert any(step["score"] == 0.9 for step in steps) == (progress == "steps")
    assert any(step["text"] for step in steps) == (progress == "steps" and not hidden)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    reasoning = "".join(delta.get("reasoning", "") for delta in deltas)
    assert bool(reasoning) == (progress == "reasoning" and not hidden)
    said, _ = text_of(CHAT, answer)
    assert said == (ANSWER.replace("Observation", "[redacted]") if hidden else ANSWER)
    assert (told[-1]["answer"], told[-1]["answers"]) == ((None, None) if hidden else ("5", ANY))


ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    "fields", [{"model": "tiny"}, {}, {"tools": [ADD], "model": "tiny:majority-vote"}]
)
@pytest.mark.parametrize("streams", [False, True])
def test_prompts_and_answers_are_kept_where_the_log_has_them(ask, fields, streams):
    body = {**ASKED[CHAT], "stream": streams, "max_tokens": 100, **fields}
    (answer,), _, (record,) = ask(lambda *_: ANSWER, (CHAT, body))
    assert text_of(CHAT, answer)[0] == record.answer == ANSWER
    assert QUESTION["content"] in record.prompt
