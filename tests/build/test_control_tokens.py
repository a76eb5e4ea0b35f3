"""Texts that spell control tokens: as prompts hold them, they are text."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Rust
from tokenizers import decoders, models, normalizers, pre_tokenizers

from tts.build.control_tokens import MARK, any_of, plain
from tts.build.tokenizer import Tokenizer

SPECIAL = {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<extra_0>"}
OTHERS = {"<tool_call>", "<table>", "\n\n"}
TEMPLATE = "{{ '<s>' }}<|im_start|>{{ messages[0].content }}<tool_call>"
"""Writes <tool_call>, so that it is control, and no <table>, which is text."""
CONTROL = SPECIAL | {"<tool_call>"}
LETTERS = " \nabé中<|>/_"


def byte_level():
    letters = dict.fromkeys([*pre_tokenizers.ByteLevel.alphabet()])
    rust = Rust(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    return rust


def sentencepiece():
    """As Llama 2's: the control tokens are in the vocabulary, a space is put in front of texts."""
    pieces = [*SPECIAL, "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a"]
    vocabulary = {piece: n for n, piece in enumerate(pieces)}
    rust = Rust(models.BPE(vocabulary, [("▁", "a")], unk_token="<unk>", byte_fallback=True))
    rust.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    rust.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return rust


def unigram():
    """As XLM-R's: its model would take a control token's spelling by itself."""
    pieces = [(piece, 0.0) for piece in (*SPECIAL, "<unk>")]
    rust = Rust(
        models.Unigram([*pieces, *((each, -1.0) for each in ["▁", *LETTERS])], len(SPECIAL))
    )
    rust.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    return rust


@pytest.fixture(scope="module", params=[byte_level, sentencepiece, unigram])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param.__name__)
    rust = request.param()
    rust.add_special_tokens(sorted(SPECIAL))
    rust.add_tokens(sorted(OTHERS))
    rust.save(str(folder / "tokenizer.json"))
    config = {"chat_template": TEMPLATE, "bos_token": "<s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    made = Tokenizer(folder)
    added = {each["id"]: each["content"] for each in made.specification["added_tokens"]}
    made.control_spellings = {token: text for token, text in added.items() if text in CONTROL}
    return made


def controls_of(tokenizer, ids):
    return [each for each in map(tokenizer.control_spellings.get, ids) if each]


texts = st.lists(st.sampled_from([*CONTROL, *OTHERS, *LETTERS, MARK, "<|im_", "end|>"])).map(
    "".join
)


@given(before=texts, text=texts, after=texts)
def test_a_text_holds_no_control_token_and_those_around_it_stay(tokenizer, before, text, after):
    before, after = plain(before.replace(MARK, "")) + "\n", "\n" + after.replace(MARK, "")
    inert = tokenizer.inert(text)
    assert plain(inert) == text
    ids = tokenizer.encode(before + inert + after)
    around = tokenizer.encode(before), tokenizer.encode(after)
    assert controls_of(tokenizer, ids) == [
        c for part in around for c in controls_of(tokenizer, part)
    ]
    if not any(each in text for each in (*CONTROL, MARK)):
        assert inert == text


@given(before=texts, text=st.text("ab <", min_size=1), after=texts)
def test_a_text_that_is_marked_has_the_ids_of_the_text(tokenizer, before, text, after):
    before, after = before.replace(MARK, ""), after.replace(MARK, "")
    marked = "".join(MARK + character for character in text)
    wanted = tokenizer.encode(before + text + after)
    if controls_of(tokenizer, wanted) == [
        *controls_of(tokenizer, tokenizer.encode(before)),
        *controls_of(tokenizer, tokenizer.encode(after)),
    ]:
        assert tokenizer.encode(before + marked + after) == wanted


def test_marks_that_are_kept_and_marks_that_are_around(tokenizer):
    text = "<tool_call>a<|im_end|><table>"
    kept = tokenizer.encode(tokenizer.inert(text, keep={"<tool_call>"}))
    assert controls_of(tokenizer, kept) == ["<tool_call>"]
    assert tokenizer.inert("<table>") == "<table>"
    assert plain(tokenizer.inert("<table>", "<table>{question}")) == "<table>"
    assert tokenizer.inert("<table>", "<table>{question}") != "<table>"


@given(st.sets(st.text("ab<", max_size=40), min_size=1), st.text("ab<", max_size=20))
def test_the_longest_of_several_texts_is_found(texts, text):
    match = re.match(any_of(texts), text)
    longest = max((each for each in texts if text.startswith(each)), key=len, default="")
    assert (match[0] if match else "") == longest


def test_an_expression_of_many_nested_texts_compiles():
    assert re.fullmatch(any_of({"<" * n for n in range(1, 600)}), "<" * 599)


def test_what_the_normalizer_makes_a_control_token_is_text_too(tmp_path):
    rust = byte_level()
    rust.normalizer = normalizers.NFKC()
    specification = json.loads(rust.to_str())
    token = {"id": 256, "content": "<end>", "special": True, "normalized": True}
    specification["added_tokens"] = [
        {**token, "single_word": False, "lstrip": False, "rstrip": False}
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps(specification))
    tokenizer = Tokenizer(tmp_path)
    wide = "＜end＞"
    assert 256 in tokenizer.encode(wide)
    assert tokenizer.encode(tokenizer.inert(wide) + "<end>").count(256) == 1
