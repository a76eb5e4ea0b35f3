"""The bundled generator that thinks, on the real server behind a gateway, by OpenAI's client."""

import pytest
from tests.end_to_end.commands import quiet
from tests.end_to_end.gateways import client, gateway

pytestmark = pytest.mark.server

QUESTION = [{"role": "user", "content": "Compute 12 + 30."}]


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with (
        quiet(tmp_path_factory.mktemp("thinking")) as tts,
        gateway(tts, deployment="demo-thinking") as address,
    ):
        yield client(address)


def asked(api, model="demo-thinking", **fields):
    """Thinking and answer, and the tokens of the thinking of a plain chat."""
    answer = api.chat.completions.create(
        model=model, messages=QUESTION, seed=1, temperature=0.8, extra_body=fields
    )
    message, details = answer.choices[0].message, answer.usage.completion_tokens_details
    thought = getattr(message, "reasoning_content", None)
    return thought, message.content, details and details.reasoning_tokens


def test_thinking_has_a_budget_is_streamed_first_and_can_be_off(api):
    for budget in (3, 200):
        whole = asked(api, thinking_token_budget=budget)
        assert whole[1].startswith("## Step 1")
        assert whole[2] == 3 if budget == 3 else 3 < whole[2] <= 200
        assert "think>" not in whole[0] + whole[1]
        stream = api.chat.completions.create(
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
        thought, text, tokens = asked(api, **off)
        assert (thought, tokens) == (None, None)
        assert text.startswith("## Step 1")


def test_forms_and_searches_answer_behind_the_thinking(api):
    thought, text, _ = asked(api, guided_regex="[0-9]{2}")
    assert thought
    assert len(text) == 2
    assert text.isdecimal()
    thought, text, _ = asked(api, "demo-thinking:beam-search", tts={"n": 4})
    assert text.startswith("## Step 1")
    assert thought
    assert "think>" not in thought
