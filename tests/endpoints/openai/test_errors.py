"""What the errors of a server mean, and where its outputs end."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.endpoints.openai.stand_in import recording

from tts.base.errors import EndpointError, EndpointTimeout, EndpointUnavailable, RequestRefused
from tts.endpoints.openai.generator import Ends, Output
from tts.endpoints.openai.http_client import MOST_WORDS, error_of_answer, error_of_event, words_of
from tts.endpoints.retry import AskedToWait
from tts.engines.generate_request import StopWords


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (307, RequestRefused),
        (400, RequestRefused),
        (401, RequestRefused),
        (404, RequestRefused),
        (500, RequestRefused),
        (408, EndpointTimeout),
        (504, EndpointTimeout),
        (429, EndpointUnavailable),
        (502, EndpointUnavailable),
        (503, EndpointUnavailable),
    ],
)
def test_each_status_is_an_error_of_ours(status, kind):
    error = error_of_answer("http://h:1", "/x", status, b'{"detail": "no"}', {})
    assert type(error) is kind
    assert error.message == f"The server at http://h:1 answered /x with status {status}: no"


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3), ("0.5", 0.5), ("1e9", 86_400), ("-1", 0), ("soon", 0)]
)
def test_a_server_may_say_how_long_to_wait(header, seconds):
    error = error_of_answer("h", "/x", 429, b"", {"Retry-After": header})
    assert (error.seconds if isinstance(error, AskedToWait) else 0) == seconds


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("vllm", "unknown_id", "Token id 9999999 is out of vocabulary"),
        ("vllm", "unknown_model", "The model `nosuch` does not exist. Valid aliases: smollm2."),
        ("llama", "unknown_id", "Prompt contains invalid tokens"),
    ],
)
def test_refusals_that_were_recorded_are_told_in_the_servers_words(kind, name, words):
    said = recording(kind)[name]
    error = error_of_answer("h", "/x", said["status"], json.dumps(said["answer"]).encode(), {})
    assert isinstance(error, RequestRefused)
    assert error.message.endswith(words)


@given(st.binary())
def test_any_words_are_one_short_line(body):
    words = words_of(body)
    assert words
    assert "\n" not in words
    assert len(words) <= MOST_WORDS + 3


def test_words_that_are_nested_too_deep_to_read_are_shown_as_they_are():
    assert words_of(b"[" * 1_000_000).startswith("[[[")


def test_an_event_is_an_error_if_it_says_so():
    assert error_of_event("h", "/x", {"choices": []}) is None
    assert isinstance(error_of_event("h", "/x", {"error": {"code": 503}}), EndpointUnavailable)
    assert isinstance(error_of_event("h", "/x", {"error": "broken"}), EndpointError)


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
    output = Output(Ends(end_ids, [StopWords(words)]), limit)
    kept, rest = [], ids
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        piece, rest = rest[:cut], rest[cut:]
        kept += piece[: output.add(piece)]
    expected = plain(ids, end_ids, words, limit)
    assert kept == expected
    whole = len(expected) == len(ids)
    assert output.is_over or whole
