"""From tokens that come a few at a time to text that may be sent, and the reason to end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from tts.endpoints.streaming import NewTokens
from tts.gateway.output.sample_text import (
    ByteDetokenizer,
    MarkingDetokenizer,
    SampleText,
    StopStrings,
    TextDetokenizer,
    detokenizers,
)


class Letters:
    """A detokenizer of letters: token 0 is a."""

    def push(self, ids):
        return "".join(chr(ord("a") + token) for token in ids)

    def finish(self):
        return ""


class Shout:
    """A filter that keeps the last character back."""

    held = ""

    def feed(self, text):
        text, self.held = (self.held + text)[:-1], (self.held + text)[-1:]
        return text.upper()

    def end(self):
        return self.held.upper()


def new(*ids, final=False):
    return NewTokens(list(ids), [], final)


@pytest.mark.parametrize(
    ("options", "last", "text", "finish"),
    [
        ({}, new(2, final=True), "abc", "stop"),
        ({}, new(final=True), "ab", "stop"),
        ({"limit": 3}, new(2, final=True), "abc", "length"),
        ({"limit": 3, "ends": [2]}, new(2, final=True), "ab", "stop"),
        ({"limit": 3, "stops": ["bc"]}, new(2, final=True), "a", "stop"),
        ({"stops": ["bcd"]}, new(2, final=True), "abc", "stop"),
        ({"stops": ["b"]}, new(2), "a", "stop"),
        ({}, new(2), "abc", None),
        ({"text_filter": Shout()}, new(2), "AB", None),
        ({"text_filter": Shout()}, new(2, final=True), "ABC", "stop"),
        ({"text_filter": Shout(), "stops": ["c"]}, new(2, 3), "AB", "stop"),
    ],
)
def test_a_choice_ends_for_a_reason(options, last, text, finish):
    stops, ends = StopStrings(options.pop("stops", ())), frozenset(options.pop("ends", ()))
    made = SampleText(0, Letters(), stops, **{"limit": 10, **options}, ends=ends)
    assert made.take(new(0, 1)) + made.take(last) == text
    assert made.finish == finish
    assert made.tokens == 2 + len(last.ids)


letters = st.text(alphabet="ab\n", min_size=1, max_size=4)


def expected(text, stops, include):
    """Character by character: it ends when one of the stops has just been written."""
    for end in range(1, len(text) + 1):
        written = [stop for stop in stops if text[:end].endswith(stop)]
        if written:
            longest = max(written, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


@given(st.lists(letters, max_size=8), st.lists(letters, max_size=3), st.booleans())
def test_a_text_ends_at_its_stop_string_however_it_was_cut(parts, stops, include):
    stopping, passed, came = StopStrings(stops, include=include), "", ""
    for part in parts:
        passed += stopping.push(part)
        came += part
        if stopping.stopped is None:  # only what may begin a stop string is held back
            held = came[len(passed) :]
            assert came == passed + held
            assert not held or any(stop.startswith(held) for stop in stops)
    if stopping.stopped is None:
        passed += stopping.finish()
    assert (passed, stopping.stopped) == expected(came, stops, include)


PIECES = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581a", "b", "\u2581", "c\u00e9"]


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
def test_bytes_in_any_cut_are_the_text_of_all(tokenizer, cut):
    size = tokenizer.vocab_size
    cut = [[token % size for token in part] for part in cut]
    new = detokenizers(tokenizer)
    assert isinstance(new(), ByteDetokenizer)
    whole = tokenizer.decode([token for part in cut for token in part])
    assert "".join(pieces(new(), cut)) == whole


@given(st.text(max_size=20))
def test_a_character_is_given_whole(tokenizer, text):
    found = pieces(detokenizers(tokenizer)(), [[token] for token in tokenizer.encode(text)])
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


def test_marks_are_spelled_between_texts(tokenizer):
    """A text that is cut off by a mark within a character says so."""
    smile = tokenizer.encode("\N{GRINNING FACE}")
    detokenizer = MarkingDetokenizer(detokenizers(tokenizer), {-1: "<call>"})
    assert detokenizer.push([*smile, -1, *smile[:-1]]) == "\N{GRINNING FACE}<call>"
    assert detokenizer.push([-1]) + detokenizer.push(smile[:-1]) == "\ufffd<call>"
    assert detokenizer.finish() == "\ufffd"
