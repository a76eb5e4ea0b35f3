"""Where an output ends, in token ids."""

from hypothesis import given
from hypothesis import strategies as st

from tts.endpoints.openai.generator import Output
from tts.engines.generate_request import StopWords

TOKENS = st.lists(st.integers(0, 4), max_size=12)
WORDS = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple), max_size=3)


def plain(ids, end_ids, words, limit):
    """The output, token by token."""
    kept = []
    for token in ids:
        if len(kept) == limit or token in end_ids:
            break
        kept.append(token)
        if any(tuple(kept[-len(word) :]) == word for word in words):
            break
    return kept


@given(TOKENS, st.sets(st.integers(0, 4), max_size=1), WORDS, st.integers(0, 12), st.data())
def test_an_output_ends_at_its_end_ids_stop_words_and_limit_however_it_comes(
    ids, end_ids, words, limit, data
):
    output = Output(end_ids, [StopWords(words)], limit)
    kept, rest = [], ids
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        piece, rest = rest[:cut], rest[cut:]
        kept += piece[: output.add(piece)]
    expected = plain(ids, end_ids, words, limit)
    assert kept == expected
    whole = len(expected) == len(ids)
    assert output.is_over or whole
