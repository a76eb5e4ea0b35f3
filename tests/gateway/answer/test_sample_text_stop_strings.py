"""A text ends at its stop string, however it was cut."""

from hypothesis import given
from hypothesis import strategies as st

from tts.gateway.answer.sample_text import StopStrings

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
def test_what_is_passed_on_does_not_depend_on_the_cut(parts, stops, include):
    stopping = StopStrings(stops, include=include)
    passed = "".join([stopping.push(part) for part in parts])
    if stopping.stopped is None:
        passed += stopping.finish()
    assert (passed, stopping.stopped) == expected("".join(parts), stops, include)


@given(letters, st.lists(letters, min_size=1, max_size=3))
def test_only_what_may_begin_a_stop_is_held_back(text, stops):
    stopping = StopStrings(stops)
    passed = stopping.push(text)
    if stopping.stopped is None:
        held = text[len(passed) :]
        assert text == passed + held
        assert held == "" or any(stop.startswith(held) for stop in stops)
