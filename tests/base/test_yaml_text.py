"""YAML as deployments use it: each mistake has a place."""

import contextlib
import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tts.base.input_files import Unreadable
from tts.base.yaml_text import parse_yaml

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(string.printable),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(string.ascii_lowercase), inner, max_size=4)
    ),
    max_leaves=20,
)


LAUGHS = ["b0: &b0 [x]", *(f"b{n}: &b{n} [{f'*b{n - 1}, ' * 9}]" for n in range(1, 13))]
MERGES = ["b0: &b0 {x: 1}", *(f"b{n}: &b{n} {{<<: [{f'*b{n - 1}, ' * 9}]}}" for n in range(1, 21))]


@given(VALUES)
def test_ordinary_yaml_is_read_as_any_reader_reads_it(value):
    assert parse_yaml(yaml.safe_dump(value)) == value


@given(st.text(st.sampled_from("abc019.-+:_!&*<>{}[],?|'\"\n \t~=#%xe\\u\0")))
def test_any_text_is_a_value_or_unreadable(text):
    with contextlib.suppress(Unreadable):
        parse_yaml(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\na: 2", 'duplicate key "a"'),
        ("a: " + "[" * 1000, "recursion depth"),
        ("a: " + "9" * 5000, "integer string conversion"),
        ("a: !!int abc", "'abc'"),
        ("a: !!set abc", "expected a mapping"),
        ("a: !!python/name:os.system x", "could not determine a constructor"),
        ("a: &a [*a]", "aliases stand for too much"),
        ("\n".join(LAUGHS), "aliases stand for too much"),
        (f"a: &a {'x' * 2000}\nb: [{'*a, ' * 1000}]", "aliases stand for too much"),
        ("\n".join(MERGES), "aliases stand for too much"),
        ("a: \0", "special characters are not allowed"),
    ],
)
def test_what_a_deployment_cannot_hold_is_refused(text, complaint):
    with pytest.raises(Unreadable, match=complaint):
        parse_yaml(text)


def test_a_mistake_is_placed():
    with pytest.raises(Unreadable, match=r'^line 2, column 1: found duplicate key "a"$'):
        parse_yaml("a: 1\na: 2")


def test_dates_and_words_are_texts_like_any_other():
    texts = ["2024-12-25", "2024-13-45", "Yes", "off", "on"]
    assert parse_yaml(f"[{', '.join(texts)}, true, 010]") == [*texts, True, 10]


def test_aliases_and_merge_keys_are_understood():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: *a"
    same = {"x": 1, "y": 2}
    assert parse_yaml(text) == {"a": same, "b": {"x": 1, "y": 3}, "c": same}
