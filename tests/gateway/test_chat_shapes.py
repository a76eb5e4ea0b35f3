"""A chat that is filled into a learnt shape is what the template makes of it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.build.spec import load_deployment
from tts.build.tokenizer import Tokenizer
from tts.gateway.chat_shapes import ChatShapes

LLAMA = (
    "{{ bos_token }}{% for m in messages %}{# knows #}<|{{ m['role'] }}|>\n"
    "{{ m['content'] | trim }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
BY_ROLE = (
    "{% if messages[0]['role'] != 'system' %}default {% endif %}{% for m in messages %}"
    "{% if m['role'] == 'user' %}U{{ m['content'] }}{% else %}O{{ m['content'] | trim }}{% endif %}"
    "{% endfor %}"
)
THINKING = (
    "{% for m in messages %}{% set c = m['content'] %}{% if '</think>' in c %}"
    "{% set c = c.split('</think>')[-1] %}{% endif %}<{{ m['role'] }}>{{ c }}{% endfor %}"
)
UPPER = "{% for m in messages %}{{ m['content'] | upper }}{% endfor %}"
LAST_ONLY = "{{ messages[-1]['content'] }}"
TWICE = "{% for m in messages %}{{ m['content'] }}{{ m['content'] }}{% endfor %}"

messages = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "user", "assistant"]),
            "content": st.text(max_size=12) | st.sampled_from(["a</think>b", " x \n", "[INST]"]),
        }
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module", params=[LLAMA, BY_ROLE, THINKING, UPPER, LAST_ONLY, TWICE])
def tokenizer(request, tokenizer_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("template")
    for name in ("tokenizer.json", "generation_config.json"):
        (folder / name).write_bytes((tokenizer_folder / name).read_bytes())
    config = json.loads((tokenizer_folder / "tokenizer_config.json").read_text())
    config["chat_template"] = request.param
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer(folder)


@given(messages, st.booleans())
@settings(max_examples=25)
def test_a_chat_is_what_the_template_makes_of_it(tokenizer, messages, prompt):
    shapes = ChatShapes(tokenizer)
    wanted = tokenizer.chat(messages, generation_prompt=prompt)
    assert shapes.render(messages, generation_prompt=prompt) == wanted
    assert shapes.render(messages, generation_prompt=prompt) == wanted  # learnt by now


def test_a_template_is_not_asked_again_for_the_same_roles(tokenizer_folder, monkeypatch):
    tokenizer = Tokenizer(tokenizer_folder)
    shapes = ChatShapes(tokenizer)
    question = [{"role": "user", "content": "1 + 1"}]
    first = shapes.render(question, generation_prompt=True)
    monkeypatch.setattr(tokenizer, "chat", None)
    assert shapes.render(question, generation_prompt=True) == first
    other = shapes.render([{"role": "user", "content": "2 + 2"}], generation_prompt=True)
    assert other == first.replace("1 + 1", "2 + 2")


def test_a_template_that_asks_for_the_time_is_always_asked(tokenizer_folder, monkeypatch):
    tokenizer = Tokenizer(tokenizer_folder)
    monkeypatch.setattr(tokenizer, "chat_template", "{{ strftime_now('%d') }}")
    monkeypatch.setattr(tokenizer, "chat", lambda messages, generation_prompt: "asked")
    shapes = ChatShapes(tokenizer)
    for _ in range(2):
        question = [{"role": "user", "content": "1 + 1"}]
        assert shapes.render(question, generation_prompt=True) == "asked"


def test_the_bundled_template_is_learnt():
    checkpoint = load_deployment("demo").generator.checkpoint
    if not checkpoint.is_dir():
        pytest.skip("the demo checkpoints are not here")
    shapes = ChatShapes(Tokenizer(checkpoint))
    question = {"role": "user", "content": " Compute 12 + 30. "}
    shapes.render([question], generation_prompt=True)
    assert all(shapes._shapes.values())
