"""The codec of the log: what is written is read back."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.runs.events import (
    Cancelled,
    Finished,
    Idle,
    LoggedAnswer,
    LoggedCompletion,
    Prefetched,
    ProblemSolved,
    ProblemStarted,
    Resources,
    SessionBegan,
    StepGenerated,
    StepScored,
    Used,
    decode,
    encode,
    logged,
    thoughts_of,
)
from tts.search import Stop, Thought

SECONDS = st.integers(0, 10**9).map(lambda us: us / 1e6)
COUNTS = st.integers(0, 10**6)
NODES = st.lists(st.integers(-1, 99), max_size=6).map(tuple)
TEXTS = st.text(st.characters(), max_size=20)  # surrogates too: a dataset may hold half a pair
KINDS = st.sampled_from(("main", "eager", "speculative"))
PAIRS = st.tuples(COUNTS, COUNTS)
REQUEST = {
    "t": SECONDS,
    "problem": TEXTS,
    "node": NODES,
    "sent": SECONDS,
    "done": SECONDS,
    "prompt_tokens": COUNTS,
    "in_flight": PAIRS,
}
MAYBE = st.none() | TEXTS
THOUGHTS = st.lists(
    st.builds(
        Thought,
        st.lists(COUNTS, max_size=5).map(tuple),
        TEXTS,
        st.sampled_from(Stop),
    ),
    max_size=3,
).map(tuple)
EVENTS = st.one_of(
    st.builds(SessionBegan, t=SECONDS, time=TEXTS, version=COUNTS, limits=st.none() | PAIRS),
    st.builds(ProblemStarted, t=SECONDS, problem=TEXTS, question=TEXTS),
    st.builds(StepGenerated, **REQUEST, kind=KINDS, tokens=COUNTS, thoughts=THOUGHTS.map(logged)),
    st.builds(
        StepScored,
        **REQUEST,
        kind=st.none() | KINDS,
        score=st.floats(0, 1),
        cached=st.booleans(),
    ),
    st.builds(Prefetched, **REQUEST),
    st.builds(
        Cancelled,
        **REQUEST,
        kind=KINDS,
        work=st.sampled_from(("expand", "score", "prefetch")),
        why=TEXTS,
    ),
    st.builds(Used, t=SECONDS, problem=TEXTS, node=NODES),
    st.builds(
        Idle,
        t=SECONDS,
        engine=st.sampled_from(("generator", "verifier")),
        since=SECONDS,
        until=SECONDS,
        why=TEXTS,
    ),
    st.builds(
        ProblemSolved,
        t=SECONDS,
        problem=TEXTS,
        answers=st.dictionaries(TEXTS, MAYBE, max_size=3),
        correct=st.none() | st.dictionaries(TEXTS, st.booleans(), max_size=3),
        any_correct=st.none() | st.booleans(),
        tree_digest=TEXTS,
        level=st.none() | COUNTS | TEXTS,
        reference=MAYBE,
        undecided=COUNTS,
        completions=st.lists(
            st.builds(LoggedCompletion, NODES, st.none() | st.floats(0, 1), st.integers(-1, 0)),
            max_size=3,
        ).map(tuple),
        groups=st.lists(
            st.builds(LoggedAnswer, TEXTS, st.none() | st.booleans()), min_size=1, max_size=3
        ).map(tuple),
        nodes=COUNTS,
    ),
    st.builds(
        Resources,
        t=SECONDS,
        cpu_s=SECONDS,
        energy_j=st.dictionaries(st.sampled_from("012"), SECONDS),
    ),
    st.builds(Finished, t=SECONDS),
)


@pytest.mark.parametrize(
    "line",
    [
        '{"event":"used","t":-1,"problem":"a","node":[]}',
        '{"event":"used","t":1e300,"problem":"a","node":[]}',
        '{"event":"used","t":1e999,"problem":"a","node":[]}',
        '{"event":"used","t":NaN,"problem":"a","node":[]}',
        '{"event":"used","t":0,"problem":"a","node":[-7]}',
        '{"event":"scored","t":0,"problem":"a","node":[],"score":1.5,"cached":true}',
        '{"event":"scored","t":0,"problem":"a","node":[],"score":0,"cached":false,"done":-1}',
        '{"event":"resources","t":0,"cpu_s":0,"energy_j":{"0":-1}}',
        '{"event":"finished","t":-1}',
    ],
)
def test_numbers_that_nothing_wrote_are_refused(line):
    with pytest.raises(ValueError, match=r"Expected|range|no JSON number"):
        decode(line.encode())


@given(EVENTS)
def test_every_event_comes_back_from_one_line_of_json(event):
    line = encode(event)
    assert b"\n" not in line
    assert decode(line) == event
    assert json.loads(line)["t"] == event.t


@given(THOUGHTS)
def test_thoughts_come_back_as_they_were_generated(thoughts):
    event = StepGenerated(
        t=0.0,
        problem="a",
        node=(0,),
        kind="main",
        sent=0.0,
        done=0.0,
        prompt_tokens=1,
        in_flight=(1, 0),
        tokens=1,
        thoughts=logged(thoughts),
    )
    assert thoughts_of(decode(encode(event))) == thoughts


def test_what_is_no_event_is_refused():
    for line in (b'{"event":"new","t":1}', b'{"event":"used","t":1}', b"[1]"):
        with pytest.raises(msgspec.ValidationError):
            decode(line)
    for line in (b"not json", b'{"event":"us'):
        with pytest.raises(ValueError):  # noqa: PT011
            decode(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"event": "used", "t": 0, "problem": "a", "x": ' + b"[" * 100_000,
        b'{"event": "used", "t": 0, "problem": "\\ud800", "node": ' + b"[" * 100_000,
        b'{"event": "scored", "t": 0, "problem": "\\ud800", "node": [0], "score": NaN}',
    ],
)
def test_a_line_that_is_too_deep_or_no_number_is_not_json(line):
    with pytest.raises(ValueError, match=r"nested too deeply|no JSON number"):
        decode(line)
