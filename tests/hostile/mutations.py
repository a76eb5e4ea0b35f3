"""Random changes of a valid file: what a disk, an editor or an attacker makes of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

Change = Callable[[bytes, random.Random], bytes]

# what a parser, a type check or an arithmetic may stumble on, as JSON and mostly YAML, too
VALUES = (
    "null", "true", "[]", "{}", '""', "0", "-1", "1.5", "1e999", "NaN", "-Infinity", "1" * 5000,
    str(2**31), str(2**63), str(10**15), str(10**400), '"\\ud800"', '"\\u0000"',
    '"../../etc/passwd"',
    '"~nobody-is-called-so/x"', '"' + "a" * 5000 + '"', "[" * 200 + "]" * 200, "[" * 100_000,
    '{"a": 1, "a": 2}', "[[[]]]", '[{"a": null}]', "2024-13-45", '"é\U0001f600"',
    "-0.0", "[1, 2, 3]",
)  # fmt: skip
TEXTS = (
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xff", b"\0", b"\r", b"\n", b"\t", b"{", b"}", b"[", b"]", b'"',
    b"\\", b"\\ud800", b":", b",", b"&a ", b"*a", b"<<: *a", b"!!int ", b"? ", b"- ", b"{{", b"}}",
    b"{%", b"%}", "\u2028".encode(), b"\x1b[31m", b"#", b"(a+)+$", b"(a|aa)+$", b"*", b"+",
    b"{1,99}", b"(?=", b")", b"{% for a in range(10**9) %}", b"{{ 'x' * 10**9 }}", b"|",
)  # fmt: skip


def mutated(valid: bytes, numbers: random.Random) -> bytes:
    """`valid` after one to three changes drawn from `numbers`."""
    for _ in range(numbers.choice((1, 1, 2, 3))):
        valid = numbers.choice(CHANGES)(valid, numbers)
    return valid


def _place(data: bytes, numbers: random.Random) -> int:
    return numbers.randrange(len(data) + 1)


def flip_a_bit(data: bytes, numbers: random.Random) -> bytes:
    """One bit is another."""
    if not data:
        return data
    place = numbers.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << numbers.randrange(8)]) + data[place + 1 :]


def insert_a_text(data: bytes, numbers: random.Random) -> bytes:
    """A text that readers stumble over is put in."""
    place = _place(data, numbers)
    return data[:place] + numbers.choice(TEXTS) + data[place:]


def cut_the_end(data: bytes, numbers: random.Random) -> bytes:
    """The file ends early."""
    return data[: _place(data, numbers)]


def drop_a_part(data: bytes, numbers: random.Random) -> bytes:
    """Some bytes are left out."""
    place = _place(data, numbers)
    return data[:place] + data[place + numbers.choice((1, 5, 100)) :]


def repeat_a_part(data: bytes, numbers: random.Random) -> bytes:
    """Some bytes come again, up to a thousand times."""
    place = _place(data, numbers)
    part = data[place : place + numbers.choice((1, 10, 200))]
    return data[:place] + part * numbers.choice((2, 3, 1000)) + data[place:]


def change_a_line(data: bytes, numbers: random.Random) -> bytes:
    """Drop a line, give it twice, or swap two."""
    lines = data.split(b"\n")
    one, other = numbers.randrange(len(lines)), numbers.randrange(len(lines))
    match numbers.randrange(3):
        case 0:
            del lines[one]
        case 1:
            lines.insert(other, lines[one])
        case _:
            lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def change_a_value(data: bytes, numbers: random.Random) -> bytes:
    """Another value behind a colon: what JSON and YAML have in common."""
    places = [place for place in range(len(data)) if data[place : place + 1] == b":"]
    if not places:
        return data
    start = numbers.choice(places) + 1
    end = start
    while end < len(data) and data[end : end + 1] not in (b",", b"}", b"]", b"\n"):
        end += 1
    return data[:start] + b" " + numbers.choice(VALUES).encode() + data[end:]


def change_a_json_value(data: bytes, numbers: random.Random) -> bytes:
    """Drop, replace, rename or nest a field somewhere in a JSON value."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return change_a_value(data, numbers)
    place = value
    mark = "\ue000"  # replaced in the text, as no Python value is written as 1e999
    for _ in range(numbers.randrange(4)):
        inner = list(place.values()) if isinstance(place, dict) else place
        if not isinstance(inner, list):
            break
        deeper = [part for part in inner if isinstance(part, (dict, list)) and part]
        if not deeper:
            break
        place = numbers.choice(deeper)
    if not isinstance(place, (dict, list)) or not place:
        return numbers.choice(VALUES).encode()
    key = numbers.choice(list(place) if isinstance(place, dict) else range(len(place)))
    match numbers.randrange(4):
        case 0:
            del place[key]
        case 1 if isinstance(place, dict):
            place[f"{key}x"] = place.pop(key)
        case 2:
            place[key] = [place[key]]
        case _:
            place[key] = mark
    return json.dumps(value).replace(json.dumps(mark), numbers.choice(VALUES)).encode()


CHANGES: tuple[Change, ...] = (
    flip_a_bit,
    insert_a_text,
    cut_the_end,
    drop_a_part,
    repeat_a_part,
    change_a_line,
    change_a_value,
    change_a_json_value,
    change_a_json_value,
    change_a_json_value,
)
