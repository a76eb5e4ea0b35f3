"""A tokenizer: damaged files, long texts beside other threads, and what each token spells."""

import json
import os
import shutil
import sys
import threading
from pathlib import Path
from unittest.mock import MagicMock, Mock, PropertyMock

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount

from tts.base import paths
from tts.base.errors import CheckpointError
from tts.build.token_texts import grammar_tokenizer, guide_texts, token_texts
from tts.build.tokenizer import LONG, Tokenizer, TooManyTokens

USER = [{"role": "user", "content": "1 + 1?"}]


@pytest.fixture
def folder(tokenizer_folder, tmp_path):
    """A copy of a good tokenizer, to be damaged."""
    return Path(shutil.copytree(tokenizer_folder, tmp_path / "tokenizer"))


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, "\udcff", '{"a": "\\ud800"}'])
def test_a_damaged_configuration_is_named(folder, text):
    (folder / "tokenizer_config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json"):
        Tokenizer(folder)


def test_a_pipe_is_no_configuration(folder):
    (folder / "tokenizer_config.json").unlink()
    os.mkfifo(folder / "tokenizer_config.json")
    with pytest.raises(CheckpointError, match="not a regular file"):
        Tokenizer(folder)


@pytest.mark.parametrize("value", ['"2"', '[1, "2"]', "[true]", "-1", "1.5", str(2**40), "{}"])
def test_end_tokens_that_are_no_ids_are_named(folder, value):
    (folder / "generation_config.json").write_text(f'{{"eos_token_id": {value}}}')
    with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id is"):
        _ = Tokenizer(folder).eos_ids


@pytest.mark.parametrize("text", ["7 ", "7 " * LONG], ids=["short", "long"])
def test_a_text_of_too_many_tokens_is_counted_and_no_list_is_made(folder, text, monkeypatch):
    tokenizer = Tokenizer(folder)
    ids = tokenizer.encode(text)
    assert tokenizer.encode(text, len(ids)) == ids
    encoding = MagicMock(__len__=lambda _: len(ids))
    type(encoding).ids = list_of_ids = PropertyMock()
    library = Mock(encode=lambda *_, **__: encoding, encode_batch_fast=lambda *_, **__: [encoding])
    monkeypatch.setattr(tokenizer, "_tokenizer", library)
    with pytest.raises(TooManyTokens) as raised:
        tokenizer.encode(text, len(ids) - 1)
    assert raised.value.count == len(ids)
    list_of_ids.assert_not_called()


def test_without_configurations_the_end_token_is_missing(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": []}')
    assert Tokenizer(folder).eos_ids == (4,)  # of tokenizer_config.json
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(CheckpointError, match="names no end-of-sequence token"):
        _ = Tokenizer(folder).eos_ids


def test_a_chat_template_that_is_no_text_is_named(folder):
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja cannot be read"):
        Tokenizer(folder).chat(USER, generation_prompt=True)


@pytest.mark.parametrize(
    "template", ["{{ +'a' }}", "{% for x in true %}{% endfor %}", "{{ 1 / 0 }}"]
)
def test_a_chat_template_that_fails_as_a_program_is_named(folder, template):
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(CheckpointError, match=r"chat template of .* failed"):
        Tokenizer(folder).chat(USER, generation_prompt=True)


PIECES = [
    "Compute 37 + 58.",
    "\n\n",
    "  ",
    "<|eot_id|>",
    "é中",
    "\U0001f600",
    "\x00",
    "## Step 1: ",
]


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return Tokenizer(tokenizer_folder)


@pytest.mark.parametrize("texts", [["1 + 1", "", "22"], ["1", "22<|eot_id|>"]])
def test_texts_are_encoded_together_as_alone(tokenizer, texts):
    texts = list(map(tokenizer.inert, texts))
    ids = list(map(tokenizer.encode, texts))
    assert tokenizer.encode_all(texts, max(map(len, ids))) == ids


def test_texts_are_encoded_together_within_a_limit(tokenizer):
    with pytest.raises(TooManyTokens, match=r"^3 tokens"):
        tokenizer.encode_all(["1", "1 +", "1"], 2)


@settings(max_examples=amount(10, 30))
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=10), min_size=1, max_size=30))
def test_a_long_text_is_encoded_and_decoded_as_a_short_one(tokenizer, pieces):
    text = "".join(pieces) or "7"
    whole = text * (LONG // len(text) + 1)
    library = tokenizer._tokenizer
    ids = tokenizer.encode(whole + "7")
    assert ids == library.encode(whole + "7", add_special_tokens=False).ids
    assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("back", [False, True], ids=["encode", "decode"])
def test_other_threads_run_while_a_long_text_is_tokenised(tokenizer, back):
    """Python lets no other thread run by itself here: only one that gives the turn away."""
    text = "Compute 37 + 58. " * 20_000
    ids = tokenizer.encode(text) if back else []
    began, done = threading.Event(), threading.Event()

    def work():
        began.set()
        tokenizer.decode(ids) if back else tokenizer.encode(text)
        done.set()

    def ran_meanwhile():
        began.clear()
        done.clear()
        thread = threading.Thread(target=work)
        thread.start()
        began.wait()
        meanwhile = not done.is_set()
        thread.join()
        return meanwhile

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        assert any(ran_meanwhile() for _ in range(20))
    finally:
        sys.setswitchinterval(interval)


@pytest.fixture(scope="module")
def demo():
    return Tokenizer(paths.deployments_dir().parent / "checkpoints" / "demo-generator")


def write(folder, model, decoder, special=("</s>", "<|end|>"), eos=(0, 1)):
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(list(special))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"eos_token_id": list(eos)}))
    return Tokenizer(folder)


def test_the_bytes_of_a_byte_level_vocabulary_spell_any_text(demo):
    texts = token_texts(demo)
    assert len(texts) == demo.vocab_size
    for text in ("1 + 2 = 3\n\n", "é ∑ 中", "\\boxed{12}"):
        assert b"".join(texts[token] for token in demo.encode(text)) == text.encode()
    assert [texts[token] for token in demo.eos_ids] == [b""]


def test_the_bytes_of_a_sentencepiece_vocabulary(tmp_path):
    spellings = ["</s>", "<|end|>", "▁so", "▁"] + [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {spelling: token for token, spelling in enumerate(spellings)}
    model = tokenizers.models.BPE(vocab, [], byte_fallback=True)
    tokenizer = write(
        tmp_path,
        model,
        tokenizers.decoders.Sequence(
            [tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.ByteFallback()]
        ),
    )
    assert token_texts(tokenizer)[:5] == [b"", b"", b" so", b" ", b"\x00"]
    assert token_texts(tokenizer)[-1] == b"\xff"
    # the engine allows the first eos at a grammar's end; the other stands where text is free
    assert guide_texts(tokenizer)[:2] == [b"", b"\n"]
    info = json.loads(grammar_tokenizer(tokenizer))
    assert info["encoded_vocab"] == ["", "", *spellings[2:]]
    assert info["stop_token_ids"] == [0, 1]
    assert json.loads(info["tokenizer_str"])["model"]["type"] == "BPE"


def test_another_kind_of_tokenizer_is_refused_by_its_decoder(tmp_path):
    model = tokenizers.models.WordPiece({"[UNK]": 0, "</s>": 1, "<|end|>": 2, "a": 3})
    tokenizer = write(tmp_path, model, tokenizers.decoders.WordPiece())
    with pytest.raises(CheckpointError, match="decodes by WordPiece"):
        token_texts(tokenizer)


def without(tmp_path, missing):
    """A tokenizer of single bytes that lacks some of them."""
    spellings = ["</s>", "<|end|>"]
    spellings += [f"<0x{byte:02X}>" for byte in range(256) if byte not in missing]
    vocab = {spelling: token for token, spelling in enumerate(spellings)}
    model = tokenizers.models.BPE(vocab, [], byte_fallback=True)
    return write(tmp_path, model, tokenizers.decoders.ByteFallback())


@pytest.mark.parametrize("missing", [0x0A, 0x37, 0x8F, 0xC3])
def test_a_vocabulary_that_cannot_spell_every_answer_is_refused_by_the_byte(tmp_path, missing):
    tokenizer = without(tmp_path, [missing])
    for read in (guide_texts, grammar_tokenizer):
        with pytest.raises(CheckpointError, match=f"no token for the byte 0x{missing:02x}"):
            read(tokenizer)


def test_a_vocabulary_may_lack_bytes_that_no_answer_holds(tmp_path):
    smollm2_lacks = [*bytes.fromhex("04061314161dc0c1f1f2"), *range(0xF5, 0x100)]
    assert b"\x04" not in guide_texts(without(tmp_path, smollm2_lacks))


@pytest.mark.parametrize(
    "text", ["", "1 + 2 = 3", "é ∑ 中 🙂", " " * 200, "Step 1: " * 40, "\n" * 99]
)
def test_no_text_has_more_characters_than_its_tokens_can_spell(demo, text):
    assert len(text) <= len(demo.encode(text)) * demo.longest_token
