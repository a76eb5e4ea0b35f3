"""YAML as deployments use it: bounded, and each mistake has a place."""

import contextlib
import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tts.build.input_files import Unreadable
from tts.build.yaml_text import MAX_DEPTH, parse_yaml

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(string.printable),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(string.ascii_lowercase), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_ordinary_yaml_is_read_as_any_reader_reads_it(value: object) -> None:
    assert parse_yaml(yaml.safe_dump(value)) == value


@given(st.text(st.sampled_from("abc019.-+:_!&*<>{}[],?|'\"\n \t~=#%xe\\u\0")))
def test_any_text_is_a_value_or_unreadable(text: str) -> None:
    with contextlib.suppress(Unreadable):
        parse_yaml(text)


def bomb(inner: str, one: str) -> str:
    """Nine levels, each of nine aliases of the one before: 9**9 values."""
    text = f"a: &a {one}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        text += f"{name}: &{name} {inner.format(', '.join([f'*{before}'] * 9))}\n"
    return text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("? [a, b]\n: c", "name of a field must be a text"),
        ("? {a: b}\n: c", "name of a field must be a text"),
        ("a: 1\na: 2", "'a' is given twice"),
        ("a: " + "[" * 5000, f"more than {MAX_DEPTH} levels deep"),
        ("\n".join(" " * depth + "a:" for depth in range(200)), "levels deep"),
        ("a: " + "9" * 5000, "not a whole number of at most 4,300 digits"),
        ("a: 0x_", "not a whole number"),
        ("a: !!int abc", "'abc' is not a whole number"),
        ("a: !!float abc", "'abc' is not a number"),
        ("a: !!bool abc", "'abc' is not true or false"),
        ("a: !!int {b: c}", "for single values"),
        ("!!map abc", "for mappings"),
        ("a: .inf", "not a finite number"),
        ("a: 1.0e+999", "not a finite number"),
        ("a: &a [*a]", "an alias stands for itself"),
        (bomb("[{}]", "[x, x]"), "more than 10,000 values"),
        (bomb("{{<<: [{}]}}", "{x: 1}"), "more than 10,000 values"),
        ("\n".join(f"a{i}: 1" for i in range(6000)), "more than 10,000 values"),
        (r'a: "\ud800"', "half of a surrogate pair"),
        ("a: !!set {b}", "means nothing here"),
        ("a: !!binary abc", "means nothing here"),
        ("a: \0", "special characters are not allowed"),
    ],
)
def test_what_a_deployment_cannot_hold_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(Unreadable, match=complaint):
        parse_yaml(text)


def test_a_mistake_is_placed() -> None:
    with pytest.raises(Unreadable, match=r"at line 2, column 4:\n +b: 0x_"):
        parse_yaml("a: 1\nb: 0x_")


def test_dates_are_texts_like_any_other() -> None:
    assert parse_yaml("[2024-12-25, 2024-13-45, =]") == ["2024-12-25", "2024-13-45", "="]


def test_aliases_and_merge_keys_are_understood() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: *a"
    same = {"x": 1, "y": 2}
    assert parse_yaml(text) == {"a": same, "b": {"x": 1, "y": 3}, "c": same}
