"""The codec of the log: what is written is read back, of this schema version and of older ones."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.runs.events import (
    Cancelled,
    Finished,
    Generated,
    Idle,
    LoggedAnswer,
    LoggedCompletion,
    LoggedThought,
    Prefetched,
    ProblemSolved,
    ProblemStarted,
    Resources,
    Scored,
    Session,
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
    st.builds(Session, t=SECONDS, time=TEXTS, version=COUNTS, limits=st.none() | PAIRS),
    st.builds(ProblemStarted, t=SECONDS, problem=TEXTS, question=TEXTS),
    st.builds(Generated, **REQUEST, kind=KINDS, tokens=COUNTS, thoughts=THOUGHTS.map(logged)),
    st.builds(
        Scored,
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
        why=MAYBE,
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
        groups=st.none()
        | st.lists(
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
    st.builds(Finished, t=SECONDS, saturation_point=st.none() | COUNTS),
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
        '{"event":"finished","t":0,"saturation_point":-1}',
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
    event = Generated(
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


V1_LINES = [
    (
        '{"event":"session","time":"2026-01-01T00:00:00+00:00","t":0.0003}',
        Session(t=0.0003, time="2026-01-01T00:00:00+00:00", version=1),
    ),
    ('{"event":"problem_started","problem":"a","t":1.0}', ProblemStarted(t=1.0, problem="a")),
    (
        '{"event":"generated","tokens":3,"thoughts":[{"ids":[1,2,3],"text":"x\\n\\n","stop":"step"}]'
        ',"problem":"a","node":[0],"kind":"eager","prompt_tokens":13,"in_flight":[64,0],'
        '"sent":0.5,"done":1.5,"t":1.5}',
        Generated(
            t=1.5,
            problem="a",
            sent=0.5,
            done=1.5,
            prompt_tokens=13,
            in_flight=(64, 0),
            node=(0,),
            kind="eager",
            tokens=3,
            thoughts=(LoggedThought((1, 2, 3), "x\n\n", Stop.STEP),),
        ),
    ),
    (
        '{"event":"scored","problem":"a","node":[0],"score":0.5,"cached":true,"t":1.0}',
        Scored(t=1.0, problem="a", node=(0,), score=0.5, cached=True),
    ),
    (
        '{"event":"prefetched","engine":"generator","problem":"a","node":[],"kind":"eager",'
        '"prompt_tokens":13,"in_flight":[2,0],"sent":0.001,"done":0.006,"t":0.007}',
        Prefetched(
            t=0.007, problem="a", sent=0.001, done=0.006, prompt_tokens=13, in_flight=(2, 0)
        ),
    ),
    (
        '{"event":"cancelled","work":"expand","problem":"a","node":[3],"kind":"speculative",'
        '"prompt_tokens":40,"in_flight":[6,1],"sent":0.1,"why":"slot","done":0.2,"t":0.2}',
        Cancelled(
            t=0.2,
            work="expand",
            problem="a",
            node=(3,),
            kind="speculative",
            prompt_tokens=40,
            in_flight=(6, 1),
            sent=0.1,
            done=0.2,
            why="slot",
        ),
    ),
    (
        '{"event":"idle","engine":"verifier","since":0.1,"until":0.2,"why":"dependency","t":0.2}',
        Idle(t=0.2, engine="verifier", since=0.1, until=0.2, why="dependency"),
    ),
    (
        '{"event":"problem_solved","problem":"a","level":2,"reference":"4","answers":{"best":"4",'
        '"weighted":"4","majority":null},"correct":{"best":true,"weighted":true},'
        '"any_correct":true,"undecided":0,"completions":[{"node":[0,1],"score":null}],"nodes":7,'
        '"tree_digest":"d","t":2.0}',
        ProblemSolved(
            t=2.0,
            problem="a",
            level=2,
            reference="4",
            answers={"best": "4", "weighted": "4", "majority": None},
            correct={"best": True, "weighted": True},
            any_correct=True,
            completions=(LoggedCompletion((0, 1), None),),
            groups=None,
            nodes=7,
            tree_digest="d",
        ),
    ),
    ('{"event":"finished","saturation_point":null,"t":2.5}', Finished(t=2.5)),
]


@pytest.mark.parametrize(("line", "event"), V1_LINES)
def test_lines_of_schema_version_1_are_read(line, event):
    assert decode(line.encode()) == event


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
