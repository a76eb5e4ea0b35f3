"""Reading what users bring: bounded, and refused in a phrase."""

import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.base.input_files import (
    MAX_DEPTH,
    Unreadable,
    as_text,
    is_file,
    parse_json,
    read_bytes,
    require_path,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # text that UTF-8 can hold
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=20,
)


@given(JSON)
def test_ordinary_json_is_read_as_python_reads_it(value):
    text = json.dumps(value)
    assert parse_json(text) == json.loads(text)
    assert parse_json(text, strict=True) == json.loads(text)


@given(st.text())
def test_any_text_is_a_value_or_unreadable(text):
    with contextlib.suppress(Unreadable):
        json.dumps(parse_json(text), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "nested more than 64 levels"),
        ("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), "nested more than 64 levels"),
        ('{"a": ' * 500 + "1" + "}" * 500, "nested more than 64 levels"),
        ("9" * 5000, "more than 4,300 digits"),
        (r'"\ud800"', r"half of a surrogate pair, \\ud800"),
        (r'{"\udfff": 1}', r"half of a surrogate pair, \\udfff"),
    ],
)
def test_json_that_later_steps_could_not_handle_is_refused(text, complaint):
    with pytest.raises(Unreadable, match=complaint):
        parse_json(text)


def test_strict_json_refuses_what_python_would_guess_at():
    for text, complaint in {
        "NaN": "NaN",
        "[-Infinity]": "-Infinity",
        '{"a": [1e999]}': "range of a double",
        '{"a": 1, "a": 2}': "'a' is given twice",
    }.items():
        parse_json(text)
        with pytest.raises(Unreadable, match=complaint):
            parse_json(text, strict=True)


def test_nesting_up_to_the_bound_and_whole_pairs_are_read():
    parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert parse_json(r'"\ud83d\ude00"') == "😀"


def test_only_regular_files_of_bounded_size_are_read(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_bytes(file, 5) == b"12345"
    with pytest.raises(Unreadable, match="5 bytes; at most 4"):
        read_bytes(file, 4)
    os.mkfifo(tmp_path / "pipe")
    for strange in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(Unreadable, match="not a regular file"):
            read_bytes(strange)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "nothing")


def test_a_file_that_hides_its_size_is_bounded_too():
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("there is no /proc here")
    assert status.stat().st_size == 0
    with pytest.raises(Unreadable, match="more than 10 bytes"):
        read_bytes(status, 10)


def test_a_byte_order_mark_is_no_text_and_a_wrong_byte_is_named():
    assert as_text(b"\xef\xbb\xbfa") == "a"
    with pytest.raises(Unreadable, match="not UTF-8: byte 0xff at offset 1"):
        as_text(b"a\xff")


@pytest.mark.parametrize("path", ["a\0b", "a" * 256, "a/" * 3000, "~no-such-user-here/a", "\ud800"])
def test_paths_that_no_file_can_have(path):
    with pytest.raises(Unreadable):
        require_path(path)
    assert not is_file(Path(path))


@given(st.text(min_size=1, max_size=300))
def test_a_path_that_is_accepted_can_be_asked_for(path):
    try:
        require_path(path)
    except Unreadable:
        return
    Path(path).expanduser().exists()
