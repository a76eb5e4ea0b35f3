"""Equal forms are equal answers, of JSON too."""

import json
import random
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.grading.sync import SyncGrader

from tts.grading import Outcome, Reason, canonical
from tts.grading.canonical import json_form


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (" 5 ", "5"),
        ("$5$", "5"),
        ("$$5$$", "5"),
        ("5.", "5"),
        ("5.0", "5"),
        ("+5", "5"),
        ("-0.0", "0"),
        (".5", "0.50"),
        ("007", "7"),
        ("−3", "-3"),
        ("３", "3"),
        ("－１，０００", "-1000"),
        ("√2", r"\sqrt{2}"),
        ("½", r"\frac{1}{2}"),
        ("- 3", "-3"),
        ("1,000", "1000"),
        ("1 000 000", "1000000"),
        (r"10{,}000", "10000"),
        (r"11,\! 111,\! 111", "11111111"),
        ("-1,234.50", "-1234.5"),
        (r"\dfrac{1}{2}", r"\frac{1}{2}"),
        (r"\tfrac {1} {2}", r"\frac{1}{2}"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})"),
        (r"\left\{ 1 \right\}", r"\{1\}"),
        (r"x\;+\,1", "x+1"),
        ("1 + 2", "1+2"),
        ("7" * 5000, "7" * 5000 + ".0"),
    ],
)
def test_spellings_of_one_answer_have_one_form(left, right):
    assert canonical(left) == canonical(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1 2", "12"),
        ("11, 111", "11,111"),  # a list, and a number
        ("(1,200)", "(1200)"),
        ("0,111", "111"),  # a decimal comma is not a thousands comma
        ("1,00", "100"),
        ("5", "5%"),
        ("0.5", "5"),
        ("-5", "5"),
        ("10", "1"),
        ("1.05", "1.5"),
        (r"\sin h", r"\sinh"),
        (r"\sin\!h", r"\sinh"),
        (r"\left.5\right|", r".5|"),
        (r"\left|a\right|b\left|c\right|", r"\left|a\left|b\right|c\right|"),
        (r"\leftarrow", "arrow"),
        (r"\\ alpha", r"\alpha"),
        ("$5$ or $6$", "5$ or $6"),
        ("[0,1)", "(0,1)"),
        ("A", "a"),
        ("...", ".."),
        (".", ""),
        ("٥", "5"),
    ],
)
def test_different_answers_keep_different_forms(left, right):
    assert canonical(left) != canonical(right)


@st.composite
def spelled_values(draw):
    """A value (an atom, or a bracketed tuple of atoms) and one of its spellings."""

    def atom():
        kind = draw(st.sampled_from(["integer", "decimal", "fraction", "symbol"]))
        number = draw(st.integers(-12_000, 12_000) | st.integers(-3, 3))
        if kind == "integer":
            return Fraction(number), draw(
                st.sampled_from([f"{number}", f"{number}.0", f" {number} "])
            )
        if kind == "decimal":
            return Fraction(number, 100), f"{'-' if number < 0 else ''}{abs(number) / 100:.2f}"
        if kind == "fraction":
            below = draw(st.integers(2, 9))
            frac = draw(st.sampled_from([r"\frac", r"\dfrac", r"\tfrac"]))
            # Not a Fraction: 2/4 and 1/2 need not share a form, nor 4/2 and 2.
            return (number, below), f"{frac}{{{number}}}{draw(space)}{{{below}}}"
        symbol = draw(st.sampled_from(["x", "y", r"\pi", "xy", r"\sqrt{2}"]))
        return symbol, symbol

    space = st.sampled_from(["", " ", r"\,", r"\;", "  ", "\n"])
    if draw(st.booleans()):
        value, text = atom()
        if isinstance(value, Fraction) and value.denominator == 1 and draw(st.booleans()):
            separator = draw(st.sampled_from([",", "{,}", r",\!", r",\! ", " ", r"\,"]))
            text = f"{int(value):,}".replace(",", separator)
    else:
        atoms = [atom() for _ in range(draw(st.integers(2, 3)))]
        left, right = draw(st.sampled_from(["()", "[]", "(]", ("", "")]))
        value = (left, tuple(value for value, _ in atoms), right)
        text = f",{draw(space) or ' '}".join(text for _, text in atoms)
        if left:
            open_sizing, close_sizing = draw(st.sampled_from([("", ""), (r"\left", r"\right")]))
            text = f"{open_sizing}{left}{text}{close_sizing}{right}"
    before, after = draw(st.sampled_from([("", ""), ("$", "$"), (" ", "."), ("$$ ", " $$")]))
    return value, f"{before}{text}{after}"


@settings(deadline=None)
@given(spelled_values(), spelled_values())
def test_equal_forms_mean_equal_values(left, right):
    assume(left[0] != right[0])
    assert canonical(left[1]) != canonical(right[1])


@settings(deadline=None)
@given(st.integers(), st.sampled_from([",", "{,}", r",\!", " "]), st.sampled_from(["", ".", ".00"]))
def test_integers_find_each_other(number, separator, end):
    assert canonical(f"{number:,}".replace(",", separator) + end) == str(number)


@settings(deadline=None)
@given(st.text(st.sampled_from("\\{}[]()$., 0159axleftrigh!,;\n\0\ud800"), max_size=30))
def test_any_text_has_a_form(text):
    assert isinstance(canonical(text), str)


@pytest.mark.parametrize("text", ["$", " ", "\\", "{,}", "1 ", "\\! ", "1,000", "\\left ", "0."])
def test_long_texts_finish(text):
    canonical(text * 200_000)


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
