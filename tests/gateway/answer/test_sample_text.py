"""From new tokens to text that may be sent, and the reason to end."""

import pytest

from tts.endpoints.base import NewTokens
from tts.gateway.answer.sample_text import SampleText, StopStrings


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


def choice(limit=10, stops=(), ends=(), **options):
    return SampleText(0, Letters(), StopStrings(stops), limit, frozenset(ends), **options)


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
    made = choice(**options)
    assert made.take(new(0, 1)) + made.take(last) == text
    assert made.finish == finish
    assert made.tokens == 2 + len(last.ids)
