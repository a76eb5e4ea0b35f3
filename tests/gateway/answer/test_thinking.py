"""Answers of models that think first: the thinking apart, and everything else behind it."""

import json
from pathlib import Path

import pytest
from tests.gateway.in_process import CHAT, RESPONSES, Says, answers, choice_of, chunks_of, roomy
from tests.prompting.test_writing import THINKS, thinking_folder

from tts.build.spec.generator import ThinkingSpec
from tts.build.tokenizer import Tokenizer

QUESTION = {"role": "user", "content": "Compute 1 + 1."}
THOUGHT = "\nAdd 1 and 1.\n\n\\boxed{9}? 5\n"
ANSWER = "1 + 1 = 2\n\nIt is \\boxed{2}."
CASES = Path(__file__).resolve().parents[4] / "shared" / "data" / "public_cases.jsonl"


class Thinks(Says):
    """A model that thinks, and then answers; it ends at stop words as engines do."""

    def __init__(self, tokenizer, answer=ANSWER, thought=THOUGHT + "</think>"):
        super().__init__(tokenizer, self._say)
        self.answer, self.thought, self.calls = answer, thought, []

    def _say(self, prompt, place):
        turn = prompt.rpartition("<|assistant|>")[2]
        answer = self.answer if "</think>" in turn else f"{self.thought}\n\n{self.answer}"
        return answer if self.thought.endswith("</think>") or "</think>" in turn else self.thought

    async def stream(self, call):
        self.calls.append(call)
        async for new in super().stream(call):
            yield new


@pytest.fixture(params=[True, False], ids=["added", "spelled"])
def served(request, tmp_path, tokenizer_folder, tiny_deployment):
    """The answers of a gateway over such a model to requests, and the model."""
    folder = thinking_folder(tmp_path / "c", tokenizer_folder, THINKS, added=request.param)

    def asked(*requests, budget=None, options=None, folder=folder, **model):
        writer = Thinks(Tokenizer(folder), **model)
        deployment = roomy(tiny_deployment)
        spec = ThinkingSpec(budget_tokens=budget)
        update = {"checkpoint": folder, "thinking": spec}
        generator = deployment.generator.model_copy(update=update)
        deployment = deployment.model_copy(update={"generator": generator})
        endpoints = {"generator": writer, "verifier": lambda question, steps: 0.9}
        said = [(path, {"model": "tiny", "temperature": 0.0, **body}) for path, body in requests]
        return answers(deployment, endpoints, *said, **(options or {})), writer

    return asked


def chat(**fields):
    return CHAT, {"messages": [QUESTION], **fields}


def parts_of(answer):
    """The thinking and the text of a chat's answer, of a stream in the order in which they came."""
    status, said = answer
    assert status == 200, said
    if isinstance(said, dict):
        message = said["choices"][0]["message"]
        assert message.get("reasoning") == message.get("reasoning_content")
        return message.get("reasoning_content", ""), message["content"]
    deltas = [choice["delta"] for chunk in chunks_of(said) for choice in chunk["choices"]]
    kinds = ["content" if d.get("content") else "thinking" for d in deltas if any(d.values())]
    assert sorted(kinds[1:], reverse=True) == kinds[1:]
    return tuple("".join(d.get(n) or "" for d in deltas) for n in ("reasoning_content", "content"))


def tokens_of(answer):
    usage = answer[1]["usage"]
    return usage["completion_tokens"], usage["completion_tokens_details"]["reasoning_tokens"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "answer", "calls"),
    [
        ({}, ANSWER, 1),
        ({"stop": "\n\n"}, "1 + 1 = 2", 1),
        ({"stop": ["boxed", "5"]}, "1 + 1 = 2\n\nIt is \\", 1),
        ({"stop_token_ids": [0]}, ANSWER, 2),
        ({"guided_regex": "1.*"}, ANSWER, 2),
        ({"thinking_token_budget": 200}, ANSWER, 2),
    ],
)
def test_what_is_asked_of_the_answer_holds_behind_the_thinking(
    served, fields, answer, calls, stream
):
    (found,), model = served(chat(stream=stream, **fields))
    assert parts_of(found) == (THOUGHT, answer)
    assert choice_of(found)[1] == "stop"
    assert model.prompts[0].endswith("<|assistant|><think>")
    assert len(model.calls) == calls
    assert not any(call.stop_at_step for call in model.calls)
    if calls == 2:
        assert model.calls[0].guide is None
        assert model.calls[0].stop_words != model.calls[1].stop_words
        assert (model.calls[1].guide is None) == ("guided_regex" not in fields)
        assert model.calls[0].seed != model.calls[1].seed
        assert model.prompts[1].endswith("<think>" + THOUGHT + "</think>")


def test_a_budget_closes_the_thinking_and_is_counted(served):
    requests = chat(thinking_token_budget=12), chat(), chat(enable_thinking=False)
    found, model = served(*requests, budget=20)
    for answer, budget in zip(found[:2], (12, 20), strict=True):
        thought, said = parts_of(answer)
        assert THOUGHT.startswith(thought.removesuffix("\n"))
        assert said == ANSWER
        assert tokens_of(answer)[1] == budget
        assert tokens_of(answer)[0] == budget + len(model.tokenizer.encode(ANSWER))
    assert parts_of(found[2]) == ("", ANSWER)
    assert "completion_tokens_details" not in found[2][1]["usage"]
    assert model.prompts[-1].endswith("<think>\n\n</think>\n\n")


def test_most_tokens_bound_thinking_and_answer_together(served):
    whole = chat(max_completion_tokens=8, thinking_token_budget=200), chat(max_tokens=8)
    found, _ = served(*whole, chat(stream=True, max_tokens=8))
    for answer in found:
        thought, said = parts_of(answer)
        assert (thought != "", said) == (True, "")
        assert THOUGHT.startswith(thought)
        assert choice_of(answer)[1] == "length"
    assert [tokens_of(answer) for answer in found[:2]] == [(8, 8)] * 2
    (both,), model = served(chat(max_tokens=30, thinking_token_budget=12))
    assert tokens_of(both) == (12 + min(18, len(model.tokenizer.encode(ANSWER))), 12)


def test_thinking_that_ends_without_its_mark_has_no_answer(served):
    (answer, called), _ = served(
        chat(), chat(tools=[ADD], tool_choice="required"), thought="Who knows"
    )
    assert parts_of(answer) == ("Who knows", "")
    assert choice_of(called)[0]["content"] == ""
    assert [choice_of(each)[1] for each in (answer, called)] == ["stop", "stop"]


ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("model", ["tiny", "tiny:majority-vote"])
def test_tools_are_called_behind_the_thinking(served, choice, model):
    call = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    thought = f"I call {call}</think>"
    written = call.partition("\n")[2] if choice == "required" else call
    request = chat(tools=[ADD], tool_choice=choice, model=model, tts={"n": 2})
    if model == "tiny":
        request[1].pop("tts")
    (answer,), writer = served(request, answer=written, thought=thought)
    message, finish = choice_of(answer)
    assert [each["function"]["name"] for each in message["tool_calls"]] == ["add"]
    assert finish == "tool_calls"
    assert message["reasoning_content"] == f"I call {call}"
    assert writer.prompts[0].endswith("<think>")
    if choice == "required":
        assert writer.prompts[-1].endswith(f"</think>{call.partition('{')[0]}")
        assert writer.guides[-1] is not None


def test_filters_of_answers_see_the_thinking(served, filters_of):
    options = {"filters": filters_of("- {term: add, action: redact, applies_to: output}\n")}
    search = chat(model="tiny:majority-vote", tts={"n": 2})
    found, _ = served(chat(), chat(stream=True), search, options=options)
    for answer in found:
        thought, said = parts_of(answer)
        assert thought.strip() == THOUGHT.replace("Add", "[redacted]").strip()
        assert said == ANSWER


def test_tokens_are_those_of_the_prompt_of_a_chat(served):
    said = {"messages": [QUESTION]}
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    found, model = served(("/tokenize", said), ("/tokenize", {**said, **off}))
    texts = [model.tokenizer.spelled(each["tokens"]) for _, each in found]
    assert texts[0].endswith("<|assistant|><think>")
    assert texts[1].endswith("<|assistant|><think>\n\n</think>\n\n")


def test_efforts_are_on_for_a_template_that_knows_on_and_off(served):
    requests = [chat(reasoning_effort=effort) for effort in ("low", "medium", "high", "none")]
    found, _ = served(*requests, chat(reasoning_effort="low", enable_thinking=True))
    assert [parts_of(each)[0] == THOUGHT for each in found] == [True] * 3 + [False, True]


@pytest.mark.parametrize("stream", [False, True])
def test_a_search_tells_the_thinking_of_its_answer_first(served, stream):
    request = chat(model="tiny:best-of-n", stream=stream, tts={"n": 2}, thinking_token_budget=200)
    off = chat(model="tiny:best-of-n", reasoning_effort="none", tts={"n": 2})
    progress = chat(model="tiny:best-of-n", stream=True, tts={"n": 1, "progress": "reasoning"})
    found, _ = served(request, off, progress)
    assert parts_of(found[0]) == (THOUGHT.strip(), ANSWER)
    assert parts_of(found[1]) == ("", ANSWER)
    told, said = parts_of(found[2])
    assert told.startswith(THOUGHT.strip() + "\n0.9000")
    assert (told.count(THOUGHT.strip()), said) == (1, ANSWER)


def test_a_response_has_its_effort_and_its_thinking(served):
    body = {"input": "Compute 1 + 1.", "reasoning": {"effort": "none"}}
    bodies = {"input": "Compute 1 + 1."}, body, {"input": "Compute 1 + 1.", "stream": True}
    (plain, off, stream), _ = served(*((RESPONSES, body) for body in bodies))
    kinds = [[item["type"] for item in each[1]["output"]] for each in (plain, off)]
    assert kinds == [["reasoning", "message"], ["message"]]
    assert off[1]["reasoning"]["effort"] == "none"
    assert plain[1]["output"][0]["content"][0]["text"] == THOUGHT
    assert stream[1].count("event: response.output_item.added") == 2


@pytest.mark.parametrize("model", ["tiny", "tiny:best-of-n"])
@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"reasoning_effort": "very"}, "reasoning_effort", "reads: enable_thinking."),
        ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs", "know 'x'"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "'messages'"),
        ({"thinking_token_budget": 1}, "thinking_token_budget", "the text that closes"),
        ({"thinking_token_budget": -1}, "thinking_token_budget", ">= 0"),
    ],
)
def test_what_a_template_cannot_do_is_refused_by_name(served, model, fields, param, said):
    ((status, answer),), writer = served(chat(model=model, **fields))
    assert (status, answer["error"]["param"]) == (400, param)
    assert said in answer["error"]["message"]
    assert not writer.calls


def test_a_model_that_does_not_think_takes_every_request_for_none(ask):
    off = {"reasoning_effort": "none", "thinking_token_budget": 0, "enable_thinking": False}
    body = {"model": "tiny", "messages": [QUESTION], "max_tokens": 5}
    plain, same, bounded, (status, told) = ask(
        (CHAT, {**body, "seed": 1}),
        (CHAT, {**body, "seed": 1, **off}),
        (CHAT, {**body, "seed": 1, "thinking_token_budget": 9}),
        (CHAT, {**body, "enable_thinking": True}),
    )
    assert plain[1]["choices"] == same[1]["choices"] == bounded[1]["choices"]
    assert (status, told["error"]["param"]) == (400, "enable_thinking")


@pytest.mark.skipif(not CASES.exists(), reason=f"{CASES} is not at hand")
def test_public_cases_are_served_by_either_kind_of_model(served, ask):
    cases = map(json.loads, CASES.read_text().splitlines())
    for case in (each for each in cases if each["kind"] == "gateway"):
        body = case["request"] | {"model": "tiny"}
        ((status, _),) = ask((CHAT, body))
        assert status == 200
        (answer,), _ = served((CHAT, body))
        thinks = body.get("chat_template_kwargs", {}).get("enable_thinking", True)
        assert parts_of(answer) == (THOUGHT if thinks else "", ANSWER)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("begun", "thought", "answer"),
    [
        ("<think>\nAdd", THOUGHT, ANSWER),
        ("<think>1</think>\n\n1 + ", "", ANSWER),
        ("1 + ", "", ANSWER),
    ],
)
def test_a_continued_message_goes_on_in_its_thinking_or_behind_it(
    served, begun, thought, answer, stream
):
    goes_on = {"continue_final_message": True, "add_generation_prompt": False}
    messages = [QUESTION, {"role": "assistant", "content": begun}]
    request = CHAT, {"messages": messages, "stream": stream, **goes_on}
    (found,), written = served(request, thought=f"{thought}</think>" if thought else answer)
    assert written.prompts[0].endswith(begun)
    assert parts_of(found) == (thought, answer)


def test_a_system_prompt_switches_the_thinking_of_its_chat(tmp_path, tokenizer_folder, served):
    switched = THINKS.replace(
        "enable_thinking is defined and not enable_thinking", "'/no_think' in messages[0].content"
    )
    folder = thinking_folder(tmp_path / "switched", tokenizer_folder, switched, added=True)
    off = {"role": "system", "content": "Be brief. /no_think"}
    requests = [chat(messages=[off, QUESTION]), chat()]
    found, model = served(*requests, folder=folder)
    assert [parts_of(each) for each in found] == [("", ANSWER), (THOUGHT, ANSWER)]
    assert model.prompts[0].endswith("</think>\n\n")
