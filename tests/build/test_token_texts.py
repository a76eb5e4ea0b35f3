"""What tokens stand for in bytes, as grammars are matched with them."""

import json

import pytest
import tokenizers

from tts.base import paths
from tts.base.errors import CheckpointError
from tts.build.token_texts import grammar_tokenizer, guide_texts, token_texts
from tts.build.tokenizer import Tokenizer


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
