"""Log-probabilities of prompts and of tokens that were not drawn, as clients read them."""

import asyncio

import pytest
from tests.endpoints.scripted import ScriptedVerifier
from tests.gateway.in_process import post, serving

from tts.endpoints.base import NewTokens, TextLogProbs

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SAYS = [50, 51]


class Reads:
    """A generator that says two letters; a text's n-th token has the log-probability -n / 8."""

    reads = True

    def __init__(self):
        self.texts = []

    async def stream(self, call):
        for token in SAYS[: call.max_new_tokens]:
            yield NewTokens([token], [-9.0] if call.log_probs else [])
        yield NewTokens([], [], final=True)

    async def generate(self, call):
        return SAYS[: call.max_new_tokens]

    async def log_probs(self, ids, top):
        self.texts.append(ids.tolist())
        places = range(1, len(ids))
        likeliest = [[(40, -0.0625), (41, -4.0), (42, -5.0)][:top] for _ in places]
        return TextLogProbs([-place / 8 for place in places], likeliest)


@pytest.fixture
def ask(tiny_deployment):
    """The answer to a request, and the texts that were read for it."""

    def asked(path, **body):
        generator = Reads()

        async def go():
            given = {"generator": generator, "verifier": ScriptedVerifier()}
            async with serving(tiny_deployment, given) as app:
                return await post(app, path, {"model": "tiny", **body})

        return *asyncio.run(asyncio.wait_for(go(), 60)), generator.texts

    return asked


def test_a_prompt_is_told_of_as_lm_eval_asks(ask):
    prompt = [45, 46, 47]
    status, said, texts = ask(TEXT, prompt=prompt, max_tokens=1, logprobs=1, echo=True)
    assert status == 200
    assert texts == [[*prompt, 50]]
    logs = said["choices"][0]["logprobs"]
    assert logs["token_logprobs"] == [None, -0.125, -0.25, -0.375]
    assert logs["top_logprobs"][0] is None
    assert [max(row.values()) for row in logs["top_logprobs"][1:]] == [-0.0625] * 3
    assert "".join(logs["tokens"]) == said["choices"][0]["text"]
    assert logs["text_offset"][0] == 0


def test_an_end_that_no_engine_gives_is_a_token_of_an_echo(ask):
    _, said, texts = ask(TEXT, prompt=[45, 46], max_tokens=5, logprobs=0, echo=True)
    assert said["choices"][0]["finish_reason"] == "stop"
    logs = said["choices"][0]["logprobs"]
    assert len(texts[0]) == len(logs["tokens"]) == 2 + len(SAYS) + 1
    assert (logs["tokens"][-1], logs["top_logprobs"]) == ("", None)


@pytest.mark.parametrize("stream", [False, True])
def test_other_tokens_are_told_of_beside_those_of_an_answer(ask, stream):
    messages = [{"role": "user", "content": "1"}]
    options = {"max_tokens": 2, "logprobs": True, "top_logprobs": 2, "stream": stream}
    status, said, texts = ask(CHAT, messages=messages, **options)
    assert (status, len(texts)) == (200, 1)
    if stream:
        assert '"top_logprobs":[{' in said
        return
    entries = said["choices"][0]["logprobs"]["content"]
    before = len(texts[0]) - 2
    assert [entry["logprob"] for entry in entries] == [-before / 8, -(before + 1) / 8]
    assert [each["logprob"] for each in entries[0]["top_logprobs"]] == [-0.0625, -4.0]


def test_every_sample_of_every_prompt_is_read(ask):
    options = {"n": 2, "max_tokens": 1, "logprobs": 1, "echo": True}
    _, said, texts = ask(TEXT, prompt=[[45], [46, 47]], **options)
    assert sorted(texts) == [[45, 50], [45, 50], [46, 47, 50], [46, 47, 50]]
    assert [len(each["logprobs"]["tokens"]) for each in said["choices"]] == [2, 2, 3, 3]


def test_log_probabilities_of_drawn_tokens_alone_are_the_engines(ask):
    _, said, texts = ask(TEXT, prompt=[45], max_tokens=1, logprobs=0)
    assert (said["choices"][0]["logprobs"]["token_logprobs"], texts) == ([-9.0], [])


def test_the_likeliest_need_log_probabilities(ask):
    status, said, _ = ask(CHAT, messages=[{"role": "user", "content": "1"}], top_logprobs=2)
    assert (status, said["error"]["param"]) == (400, "top_logprobs")
