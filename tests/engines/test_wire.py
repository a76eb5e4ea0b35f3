import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.base.errors import RequestError
from tts.engines.wire import (
    Failure,
    decode_failure,
    decode_stop_words,
    encode_failure,
    encode_stop_words,
    scalar,
)

words = st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4), max_size=8)


@given(words, st.integers(0, 5))
def test_stop_words_round_trip_with_any_padding(given_words, padding):
    table = encode_stop_words(given_words)
    padded = np.concatenate([table, np.tile([[0], [-1]], padding).astype(np.int32)], axis=1)
    expected = tuple(tuple(word) for word in given_words)
    assert decode_stop_words(padded) == expected
    assert decode_stop_words(padded[None]) == expected


def test_the_layout_is_the_one_of_the_contract():
    assert encode_stop_words([[5, 6], [9]]).tolist() == [[5, 6, 9], [2, 3, -1]]


@pytest.mark.parametrize(
    ("word", "reason"),
    [([], "no tokens"), ([2**32 + 5], "the id 4294967301"), ([2, -1], "the id -1")],
)
def test_a_word_that_cannot_be_is_refused_by_the_encoder(word, reason):
    with pytest.raises(ValueError, match=reason):
        encode_stop_words([[1], word])


@pytest.mark.parametrize("table", [[[], []], [[0], [-1]]])
def test_no_words(table):
    assert decode_stop_words(np.array(table, dtype=np.int32)) == ()


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ([[5, 6, 9]], "two rows"),
        ([[[5, 6]], [[1, 2]]], "shape"),
        ([[5, 6], [2, 2]], "increasing"),
        ([[5, 6], [2, 1]], "increasing"),
        ([[5, 6], [0, 2]], "positive"),
        ([[5, 6], [-2, 2]], "positive"),
        ([[5, 6], [1, 3]], "beyond"),
        ([[5, 6], [-1, 2]], "after the padding"),
    ],
)
def test_each_malformed_layout_is_refused(table, reason):
    with pytest.raises(RequestError, match=reason):
        decode_stop_words(np.array(table, dtype=np.int32))
    with pytest.raises(RequestError, match="INT32"):
        decode_stop_words(np.array(table, dtype=np.int64))


@given(st.integers(0, 2**64 - 1))
def test_scalars_have_the_batch_dimension_and_type_of_the_contract(seed):
    tensor = scalar("seed", seed)
    assert tensor.shape == (1, 1)
    assert tensor.dtype == np.uint64
    assert tensor.item() == seed


@given(st.sampled_from(Failure), st.text())
def test_a_failure_and_its_sentence_round_trip(failure, sentence):
    assert decode_failure(encode_failure(failure, sentence)) == (failure, sentence)
    through_an_ensemble = f"in ensemble 'prm', {encode_failure(failure, sentence)}"
    assert decode_failure(through_an_ensemble) == (failure, f"in ensemble 'prm', {sentence}")


@pytest.mark.parametrize(
    "text", ["", "out of memory", "[E0001] [unavailable] x", "x [refused] y", "[no_code] x"]
)
def test_an_error_that_no_engine_of_ours_wrote_has_no_code(text):
    assert decode_failure(text) == (None, text)
