"""What the Triton model and the engine's process tell each other arrives as it was sent."""

import itertools
import socket
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from tts.engines.engine_messages import (
    Cancel,
    EngineReport,
    FromEngine,
    MessageReader,
    Messages,
    Open,
    Opened,
    Submissions,
    Submit,
    ToEngine,
    Words,
    encode,
)
from tts.engines.generate_request import EngineLimits, GenerateRequest
from tts.engines.responses import Response
from tts.engines.statistics import Statistics
from tts.engines.wire import Guide

IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40)
REQUESTS = st.builds(
    GenerateRequest,
    input_ids=IDS.map(lambda ids: np.array(ids, np.int64)),
    max_new_tokens=st.integers(1, 1000),
    end_id=st.none() | st.integers(0, 1000),
    stop_words=st.lists(IDS.map(tuple), max_size=3).map(tuple),
    temperature=st.floats(0, 10),
    seed=st.integers(0, 2**64 - 1),
    streaming=st.booleans(),
    guide=st.none() | st.builds(Guide, st.text(), st.text()),
)
RESPONSES = st.builds(
    Response,
    IDS,
    log_probs=st.none() | st.lists(st.floats(-100, 0)),
    label_logits=st.none() | st.tuples(st.floats(-100, 0), st.floats(-100, 0)),
    finish_reason=st.none() | st.sampled_from(["length", "stop", "end_id", "cancelled"]),
    error=st.none() | st.text(),
)
SENT = st.lists(
    st.builds(Cancel, st.integers(0, 2**40))
    | st.builds(Submit, st.integers(0, 2**40), REQUESTS, st.booleans()),
    max_size=5,
)


class Pieces:
    """A socket that gives what was sent in pieces of its own choice."""

    def __init__(self, data, sizes):
        self._data, self._sizes = data, sizes

    def recv(self, most):
        size = min(most, next(self._sizes))
        piece, self._data = self._data[:size], self._data[size:]
        return piece


def received(data, kind, sizes):
    taking, messages = MessageReader(Pieces(data, sizes), kind), []
    while (some := taking.take()) is not None:
        messages += some
    return messages


def plain(message):
    if not isinstance(message, Submit):
        return message
    fields = asdict(message.request)
    return message.ticket, message.cold, fields.pop("input_ids").tolist(), fields


@settings(max_examples=50)
@given(SENT, st.lists(st.integers(1, 400), min_size=1))
def test_messages_arrive_whole_however_the_stream_is_cut(messages, sizes):
    arrived = received(b"".join(map(encode, messages)), ToEngine, itertools.cycle(sizes))
    assert list(map(plain, arrived)) == list(map(plain, messages))
    for message in arrived:
        if isinstance(message, Submit):
            assert message.request.input_ids.dtype == np.int64


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 2**40), RESPONSES), max_size=4), st.booleans())
def test_responses_arrive_as_they_were(responses, published):
    report = EngineReport(responses, [Statistics(iteration=3, seconds=0.5)] if published else [])
    whole = itertools.repeat(1 << 20)
    assert received(encode(Opened(None)) + encode(report), FromEngine, whole) == [
        Opened(None),
        report,
    ]


def test_what_to_open_arrives_as_it_was():
    limits = EngineLimits(128, 256, 64, 32, 10, 8, guided_end_id=2)
    opening = Open(Path("/engines/a b"), limits, 2, 0.5, None, Path("/tokenizer/\udcff"))
    assert received(encode(opening), ToEngine, itertools.repeat(7)) == [opening]


def test_a_message_cut_off_by_the_end_is_dropped():
    data = encode(Cancel(1)) + encode(Cancel(2))[:-1]
    assert received(data, ToEngine, itertools.repeat(1 << 20)) == [Cancel(1)]


def test_nothing_there_yet_is_not_the_end():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        taking = MessageReader(ours, ToEngine)
        with pytest.raises(BlockingIOError):
            taking.take()
        theirs.sendall(encode(Cancel(5)))
        assert taking.take() == [Cancel(5)]


@given(st.lists(st.integers(0, 14), max_size=60))
def test_stop_words_arrive_with_their_requests_and_mostly_as_a_number(chosen):
    lists = [tuple((number, token) for token in range(number)) for number in range(15)]
    submissions, messages = Submissions(), Messages(ToEngine)
    known, sent = {}, 0
    prompt = np.array([1], np.int64)
    for ticket, number in enumerate(chosen):
        request = GenerateRequest(prompt, 2, stop_words=lists[number])
        *words, submit = messages.feed(submissions.encode(ticket, request, cold=False))
        known.update({each.number: each.stop_words for each in words})
        assert all(isinstance(each, Words) for each in words)
        assert submit.ticket == ticket
        assert (known[submit.words] if submit.words else ()) == lists[number]
        assert submit.request.stop_words == ()
        sent += len(words)
    assert len(known) <= 8
    if len({*chosen} - {0}) <= 8:
        assert sent == len({*chosen} - {0}), "each only once"
