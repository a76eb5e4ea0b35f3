"""Token ids of prompts, dialogues and steps."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.build.errors import CheckpointError
from tts.build.spec import GeneratorSpec, Labels, VerifierSpec
from tts.build.tokenizer import Tokenizer
from tts.orchestrator.prompts import generator_prompt, rlhflow_format
from tts.orchestrator.search import Stop
from tts.orchestrator.steps import delimiter_stop_words, first_step, split_steps


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return Tokenizer(tokenizer_folder)


step_texts = st.text(st.characters(codec="utf-8", exclude_characters="<|>"), min_size=1).filter(
    lambda text: text == text.strip() and "\n\n" not in text
)


@settings(max_examples=100, deadline=None)
@given(question=step_texts, steps=st.lists(step_texts, min_size=1, max_size=5))
def test_a_longer_dialogue_extends_a_shorter_one(tokenizer, question, steps):
    form = rlhflow_format(tokenizer, VerifierSpec.model_construct(labels=Labels()))
    ids = form.first(question, steps[0])
    messages = [{"role": "user", "content": f"{question} {steps[0]}"}]
    for step in steps[1:]:
        longer = form.extend(ids, step)
        assert longer[: len(ids)].tolist() == ids.tolist()
        ids = longer
        messages += [{"role": "assistant", "content": "+"}, {"role": "user", "content": step}]
    whole = tokenizer.encode(tokenizer.chat(messages, generation_prompt=True))
    assert ids.tolist() == whole, "the pieces differ from the template's own rendering"


def test_an_empty_step_is_scored_as_its_parent(tokenizer):
    form = rlhflow_format(tokenizer, VerifierSpec.model_construct(labels=Labels()))
    ids = form.first("1 + 1?", "2")
    assert form.extend(ids, "") is ids


def test_labels_must_be_one_token(tokenizer):
    labels = Labels(positive="good", negative="-")
    with pytest.raises(CheckpointError, match="'good' is 4 tokens"):
        rlhflow_format(tokenizer, VerifierSpec.model_construct(labels=labels))


def test_a_template_that_rewrites_messages_is_refused(tokenizer_folder, tmp_path):
    for file in tokenizer_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config["chat_template"] = "{% for m in messages %}{{ m['content'] | upper }}{% endfor %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="verbatim"):
        rlhflow_format(Tokenizer(tmp_path), VerifierSpec.model_construct(labels=Labels()))


def test_the_generator_prompt_is_the_chat_template(tokenizer):
    spec = GeneratorSpec.model_construct(system_prompt=None)
    ids = generator_prompt(tokenizer, spec, "What is 1 + 1?")
    text = "<|begin_of_text|><|user|>What is 1 + 1?<|eot_id|><|assistant|>"
    assert ids.tolist() == tokenizer.encode(text)
    spec = GeneratorSpec.model_construct(system_prompt="Be brief.")
    assert "Be brief." in tokenizer.decode(generator_prompt(tokenizer, spec, "1?").tolist())


def test_stop_words_hold_every_token_with_the_delimiter_and_every_spelling():
    texts = ["", "a", "\n", "\n\n", ".\n\n", "\n\n\n", "\nb", "c\n"]
    words = delimiter_stop_words(texts, "\n\n")
    assert sorted(words) == [(2, 2), (3,), (4,), (5,)]


PIECES = ["a", "\n", "\n\n", "b\n", "\nc", ".\n\n", "\n\n\n", "\n\nd", " "]


def decode(ids):
    return "".join(PIECES[i] for i in ids)


ids_strategy = st.lists(st.integers(0, len(PIECES) - 1), max_size=12)


@settings(max_examples=300)
@given(ids=ids_strategy, truncated=st.booleans())
def test_splitting_keeps_every_token_and_ends_steps_at_the_delimiter(ids, truncated):
    thoughts = split_steps(ids, decode, "\n\n", truncated=truncated)
    assert [token for thought in thoughts for token in thought.token_ids] == ids
    *steps, last = thoughts
    for step in steps:
        assert step.stop is Stop.STEP
        assert "\n\n" in step.text
        assert "\n\n" not in decode(step.token_ids[:-1])
    assert last.stop is (Stop.LENGTH if truncated else Stop.END)
    assert "\n\n" not in last.text


@settings(max_examples=300)
@given(ids=ids_strategy, truncated=st.booleans())
def test_the_first_step_is_what_splitting_finds_first(ids, truncated):
    assert (
        first_step(ids, decode, "\n\n", truncated=truncated)
        == split_steps(ids, decode, "\n\n", truncated=truncated)[0]
    )
