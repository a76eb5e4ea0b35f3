"""Texts of unknown origin on a terminal."""

from hypothesis import given
from hypothesis import strategies as st

from tts.base.shown_text import printable


@given(st.text(st.characters() | st.sampled_from("\x1b\x7f\x9b\u202e\u2069")))
def test_nothing_that_steers_a_terminal_is_left_and_nothing_else_changes(text):
    shown_text = printable(text)
    assert len(shown_text) == len(text)
    for before, after in zip(text, shown_text, strict=True):
        control = ord(before) < 32 or 0x7F <= ord(before) < 0xA0 or before in "\u202e\u2066\u2069"
        if before in "\t\n" or not control:
            assert after == before or 0x202A <= ord(before) <= 0x2069
        else:
            assert after.isprintable()
