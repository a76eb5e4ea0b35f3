"""Text that comes token by token is the text of all tokens at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from tts.build.tokenizer import Tokenizer
from tts.gateway.answer.sample_text import ByteDetokenizer, TextDetokenizer, detokenizers

PIECES = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581a", "b", "\u2581", "c\u00e9"]


@pytest.fixture(scope="module")
def byte_level(tokenizer_folder):
    return Tokenizer(tokenizer_folder)


@pytest.fixture(scope="module")
def sentence_piece():
    """A vocabulary as SentencePiece's: words with their space, and bytes for all else."""
    library = Library(models.BPE(vocab={p: i for i, p in enumerate(PIECES)}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    return library


def pieces(detokenizer, cut):
    """What each part of the tokens adds, and the rest."""
    return [detokenizer.push(part) for part in cut] + [detokenizer.finish()]


cuts = st.lists(st.lists(st.integers(0, 10_000), max_size=4), max_size=12)


@given(cuts)
def test_bytes_in_any_cut_are_the_text_of_all(byte_level, cut):
    size = byte_level.vocab_size
    cut = [[token % size for token in part] for part in cut]
    new = detokenizers(byte_level)
    assert isinstance(new(), ByteDetokenizer)
    whole = byte_level.decode([token for part in cut for token in part])
    assert "".join(pieces(new(), cut)) == whole


@given(st.text(max_size=20))
def test_a_character_is_given_whole(byte_level, text):
    found = pieces(detokenizers(byte_level)(), [[token] for token in byte_level.encode(text)])
    assert "".join(found) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in found)


@given(st.lists(st.integers(257, 260), max_size=12), st.text(max_size=4))
def test_texts_in_any_cut_are_the_text_of_all(sentence_piece, words, text):
    ids = words[:6] + [1 + byte for byte in text.encode()] + words[6:]
    one_by_one = pieces(TextDetokenizer(sentence_piece.decode), [[token] for token in ids])
    assert "".join(one_by_one) == sentence_piece.decode(ids)


@given(st.lists(st.integers(0, len(PIECES) - 1), max_size=10))
def test_no_bytes_are_an_error_and_the_words_after_them_are_given(sentence_piece, ids):
    """Where DecodeStream of tokenizers raises: bytes that are no UTF-8, and then a word."""
    word = PIECES.index("c\u00e9")
    found = pieces(TextDetokenizer(sentence_piece.decode), [[token] for token in [*ids, word]])
    assert "".join(found).endswith("c\u00e9")


def test_an_output_that_ends_within_a_character_says_so(byte_level):
    ids = byte_level.encode("\N{GRINNING FACE}")[:-1]
    detokenizer = detokenizers(byte_level)()
    assert detokenizer.push(ids) == ""
    assert detokenizer.finish() == "\ufffd"
