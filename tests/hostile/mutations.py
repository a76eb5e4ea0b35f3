"""Random changes of a valid file: what a disk, an editor or an attacker makes of it."""

import json
import random

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
        valid = numbers.choice((_bytes_changed, _line_changed, *[_value_changed] * 3))(
            valid, numbers
        )
    return valid


def _bytes_changed(data: bytes, numbers: random.Random) -> bytes:
    """One bit is another, a text is put in, or some bytes are left out, come again or are last."""
    place = numbers.randrange(len(data) + 1)
    before, after = data[:place], data[place:]
    match numbers.randrange(5):
        case 0:
            return (
                before + bytes(byte ^ 1 << numbers.randrange(8) for byte in after[:1]) + after[1:]
            )
        case 1:
            return before + numbers.choice(TEXTS) + after
        case 2:
            return before
        case 3:
            return before + after[numbers.choice((1, 5, 100)) :]
        case _:
            part = after[: numbers.choice((1, 10, 200))]
            return before + part * numbers.choice((2, 3, 1000)) + after


def _line_changed(data: bytes, numbers: random.Random) -> bytes:
    """A line is dropped, comes twice, or is in another's place."""
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


def _value_changed(data: bytes, numbers: random.Random) -> bytes:
    """A part of a JSON value is dropped, replaced, renamed or nested; one of YAML is replaced."""
    mark = "\ue000"  # replaced in the text, as no Python value is written as 1e999
    instead = numbers.choice(VALUES).encode()
    try:
        value = place = json.loads(data)
    except (ValueError, RecursionError):  # YAML has colons in common with JSON
        ends = [end for end in range(1, len(data)) if data[end - 1 : end] == b":"]
        start = numbers.choice(ends or [len(data)])
        end = min(
            (data.find(each, start) % (len(data) + 1) for each in (b",", b"}", b"]", b"\n")),
            default=start,
        )
        return data[:start] + b" " + instead + data[end:]
    for _ in range(numbers.randrange(4)):
        inner = place.values() if isinstance(place, dict) else place
        deeper = [each for each in inner if isinstance(each, dict | list) and each]
        if not deeper:
            break
        place = numbers.choice(deeper)
    if not isinstance(place, dict | list) or not place:
        return instead
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
    return json.dumps(value).replace(json.dumps(mark), instead.decode()).encode()
