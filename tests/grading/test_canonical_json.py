"""JSON answers are equal by value, whatever their spelling, and equal to nothing else."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.grading.sync import SyncGrader

from tts.grading import Outcome, Reason, canonical
from tts.grading.canonical import json_form

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), VALUES, min_size=1, max_size=4)


def spelled(value, choice):
    """JSON with members in some order and spaces somewhere."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: choice.random())
        members = [f"{json.dumps(name)} : {spelled(value[name], choice)}" for name in names]
        return "{ " + " , ".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",  ".join(spelled(part, choice) for part in value) + " ]"
    if type(value) is int:
        return choice.choice([f"{value}", f"{value}.0", f"{value}e0", f"{value}0e-1"])
    return json.dumps(value, ensure_ascii=choice.random() < 0.5)


def same(one, other):
    """Equal as JSON values: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(OBJECTS, st.integers())
def test_spellings_of_one_value_have_one_form(value, seed):
    choice = random.Random(seed)
    assert canonical(spelled(value, choice)) == canonical(spelled(value, choice))


@given(OBJECTS, OBJECTS)
def test_forms_differ_where_values_do(one, other):
    forms = [canonical(json.dumps(value)) for value in (one, other)]
    assert (forms[0] == forms[1]) == same(one, other)


NO_JSON = (
    *("5", r"\{1, 2\}", "[1, 2]", "{1,2}", '{"a": NaN}', '{"a": 1, "a": 2}', '{"a"', "{}"),
    *('["' + "[" * 3000, '{"a": 1e9999999999999999999}', '{"a":' * 3000),
)


@pytest.mark.parametrize("text", NO_JSON, ids=range(len(NO_JSON)))
def test_what_is_no_json_object_is_left_to_mathematics(text):
    assert json_form(text) is None


def test_verdicts():
    with SyncGrader() as grader:
        equal = grader.equal_sync('{"value": 1.0, "unit": "m"}', '{"unit":"m","value":1}')
        assert (equal.outcome, equal.reason) == (Outcome.EQUAL, Reason.CANONICAL)
        known = '{"value": 1, "unit": "m"}'
        for other in ('{"unit":"m","value":2}', '{"unit":"- m","value":1}', "1", r"\frac{1}{2}"):
            for pair in ((known, other), (other, known)):
                verdict = grader.equal_sync(*pair)
                assert (verdict.outcome, verdict.reason) == (Outcome.DIFFERENT, Reason.JSON)
        assert grader.worker_pids() == []
