"""The codec of the log: what is written is read back."""

import json
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.runs.events import AnyEvent, StepGenerated, decode, encode, logged, thoughts_of

TEXTS = st.text(st.characters(), max_size=20)  # surrogates too: a dataset may hold half a pair
OWN = {"group": st.integers(-1, 0)}
"""Of a completion: there is one group at least."""


def values(hint, least=0):
    """Values of any type of which events are made, within the bounds that it names."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Annotated:
        number, bounds = parts
        return (st.floats if number is float else st.integers)(bounds.ge, bounds.le)
    if kind in (UnionType, Union):
        return st.one_of(*map(values, parts))
    if kind is dict:
        return st.dictionaries(*map(values, parts), max_size=2)
    if kind is tuple and parts[1:] == (...,):
        return st.lists(values(parts[0]), min_size=least, max_size=3).map(tuple)
    if kind is tuple:
        return st.tuples(*map(values, parts))
    if is_dataclass(hint) or isinstance(hint, msgspec.StructMeta):
        hints = get_type_hints(hint, include_extras=True)
        fields = {name: values(each, name == "groups") for name, each in hints.items()}
        return st.builds(hint, **fields | {name: OWN[name] for name in OWN if name in hints})
    if hint is int:
        return st.integers(-(2**63), 2**63 - 1)
    if hint is Any:  # of chat_template_kwargs
        return st.booleans() | TEXTS
    if hint is float:
        return st.floats(-1e15, 1e15)
    return TEXTS if hint is str else st.from_type(hint)


@given(values(AnyEvent))
def test_every_event_comes_back_from_one_line_of_json(event):
    line = encode(event)
    assert b"\n" not in line
    assert decode(line) == event
    assert json.loads(line)["t"] == event.t
    if isinstance(event, StepGenerated):
        assert logged(thoughts_of(event)) == event.thoughts


@pytest.mark.parametrize(
    "line",
    [
        '{"event":"used","t":-1,"problem":"a","node":[]}',
        '{"event":"used","t":1e300,"problem":"a","node":[]}',
        '{"event":"used","t":1e999,"problem":"a","node":[]}',
        '{"event":"used","t":NaN,"problem":"a","node":[]}',
        '{"event":"used","t":0,"problem":"a","node":[-7]}',
        '{"event":"scored","t":0,"problem":"a","node":[],"score":1.5,"cached":true}',
        '{"event":"scored","t":0,"problem":"\\ud800","node":[0],"score":NaN}',
        '{"event":"scored","t":0,"problem":"a","node":[],"score":0,"cached":false,"done":-1}',
        '{"event":"resources","t":0,"cpu_s":0,"energy_j":{"0":-1}}',
        '{"event":"finished","t":-1}',
        '{"event": "used", "t": 0, "problem": "a", "x": ' + "[" * 100_000,
        '{"event": "used", "t": 0, "problem": "\\ud800", "node": ' + "[" * 100_000,
        '{"event":"us',
    ],
)
def test_numbers_that_nothing_wrote_and_what_is_no_json_are_refused(line):
    with pytest.raises(ValueError, match=r"Expected|range|no JSON number|nested too|Unterminated"):
        decode(line.encode())


@pytest.mark.parametrize("line", ['{"event":"new","t":1}', '{"event":"used","t":1}', "[1]"])
def test_json_that_is_no_event_is_told_from_what_is_no_json(line):
    with pytest.raises(msgspec.ValidationError):
        decode(line.encode())
