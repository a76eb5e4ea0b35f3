"""Token ids of prompts and steps."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount

from tts.build.spec import GeneratorSpec
from tts.prompting.chat import chat_prompt, generator_chat
from tts.prompting.step_ends import count_stop_words, delimiter_stop_words, first_step, split_steps
from tts.search import Stop


def test_the_generator_prompt_is_the_chat_template(tokenizer):
    spec = GeneratorSpec.model_construct(system_prompt=None)
    ids = chat_prompt(tokenizer, generator_chat(spec, "What is 1 + 1?"))
    text = "<|begin_of_text|><|user|>What is 1 + 1?<|eot_id|><|assistant|>"
    assert ids.tolist() == tokenizer.encode(text)
    spec = GeneratorSpec.model_construct(system_prompt="Be brief.")
    assert "Be brief." in tokenizer.decode(
        chat_prompt(tokenizer, generator_chat(spec, "1?")).tolist()
    )


def test_stop_words_hold_every_token_with_the_delimiter_and_every_spelling():
    texts = ["", "a", "\n", "\n\n", ".\n\n", "\n\n\n", "\nb", "c\n"]
    words = delimiter_stop_words(texts, "\n\n")
    assert sorted(words) == [(2, 2), (3,), (4,), (5,)]


@given(st.lists(st.text("ab", max_size=3), max_size=8), st.text("ab", min_size=1, max_size=6))
def test_stop_words_are_counted_without_listing_them(texts, delimiter):
    assert count_stop_words(texts, delimiter) == len(delimiter_stop_words(texts, delimiter))


PIECES = ["a", "\n", "\n\n", "b\n", "\nc", ".\n\n", "\n\n\n", "\n\nd", " "]


def decode(ids):
    return "".join(PIECES[i] for i in ids)


ids_strategy = st.lists(st.integers(0, len(PIECES) - 1), max_size=12)


@settings(max_examples=amount(75, 300))
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


@settings(max_examples=amount(75, 300))
@given(ids=ids_strategy, truncated=st.booleans())
def test_the_first_step_is_what_splitting_finds_first(ids, truncated):
    assert (
        first_step(ids, decode, "\n\n", truncated=truncated)
        == split_steps(ids, decode, "\n\n", truncated=truncated)[0]
    )
