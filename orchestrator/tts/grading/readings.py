r"""Readings of answers that are ours and not math-verify's: what people mean by some notations.

- Times of day. math-verify drops the unit and divides: 4:30 a.m., 4:30 p.m. and 2:15 are one.
- Choices. To math-verify "(D) 12 km" is a product, which the letter D does not equal.
- Decimal commas. To math-verify "1,22" is a list of two numbers, as MATH writes them.

Each reading holds only where no other one is likely, and says nothing (None) elsewhere.
"""

from __future__ import annotations

import re

from .canonical import canonical
from .notation import in_latex

_WRAPPED = re.compile(r"\\(?:text|mathrm|textrm|textbf|mathbf)\s*\{([^{}]*)\}")
_TIME = re.compile(
    r"(?P<hour>1?\d|2[0-3]):(?P<minute>[0-5]\d)(?:(?P<half>[ap])\.?m\.?)?", re.ASCII | re.IGNORECASE
)
_LETTER = re.compile(r"([A-J])|\(([A-J])\)")
_OPERATOR = r"[-+*/^=<>,;)]|\\(?:cdot|times|div|pm|mp|cup|cap|in|le|leq|ge|geq|ne|neq)(?![A-Za-z])"
_LABELLED = re.compile(
    rf"(?:\(([A-J])\)|([A-J])[.)])(?:\s|~|\\[ ,;:]|\\quad)+(?![\s~]|\\[ ,;:]|{_OPERATOR})(?=.)"
    r"|(?i:option|choice)\s+\(?([A-J])\)?\Z"
)
_COMMA = re.compile(r"(?P<whole>[+-]?\d+)(?:,|\{,\})(?P<decimals>\d+)", re.ASCII)
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)
_POINT = re.compile(r"-?\d+\.\d+", re.ASCII)


def may_be_same_time(answer: str, other: str) -> bool | None:
    """Whether two times of day may be one; None unless both are and one says a.m. or p.m.

    Without that, "4:30" may as well be a ratio; beside a time it is one in either half of the day.
    """
    one, two = _time(answer), _time(other)
    if one is None or two is None or not (one["half"] or two["half"]):
        return None
    return not _minutes(one).isdisjoint(_minutes(two))


def is_same_choice(answer: str, other: str) -> bool | None:
    """Whether two choices have one letter; None unless one is a letter and one is labelled with it.

    The letter is "D" or "(D)", the labelled one "(D) 12 km", "D) 12 km" or "option D". Two
    labelled ones are left to math-verify, which compares their texts too.
    """
    one, two = _unwrapped(answer), _unwrapped(other)
    for letter, labelled in ((one, two), (two, one)):
        choice, label = _LETTER.fullmatch(letter), _LABELLED.match(labelled)
        if choice and label:
            return (choice[1] or choice[2]) == (label[1] or label[2] or label[3])
    return None


def is_decimal_comma(answer: str, reference: str) -> bool:
    """Whether `answer` is the number that `reference` writes with a decimal comma.

    The answer must have a decimal point, so that any other reading of the reference stays as it is:
    "1,22" may be a list as well. "1,220" is 1220 and never 1.22; "0,220" and "1220,500" have commas
    that cannot part thousands.
    """
    number = _COMMA.fullmatch(reference.strip().strip("$").strip().replace("−", "-"))
    if number is None or _GROUPED.fullmatch(number[0].replace("{,}", ",")):
        return False
    form = canonical(answer)
    value = canonical(f"{number['whole']}.{number['decimals']}")
    return form == value and _POINT.fullmatch(form) is not None


def _time(answer: str) -> re.Match[str] | None:
    if ":" not in answer:
        return None
    text = _WRAPPED.sub(r"\1", answer.strip().strip("$"))
    return _TIME.fullmatch(re.sub(r"\\[,;: ]|[\s~]+", "", text))


def _minutes(time: re.Match[str]) -> set[int]:
    """The minutes since midnight that a time may mean."""
    hour, minute = int(time["hour"]), int(time["minute"])
    if time["half"]:
        afternoon = time["half"].lower() == "p"
        return {(hour % 12 + 12 * afternoon) * 60 + minute}
    hours = {hour} if hour > 12 else {hour % 12, hour % 12 + 12}
    return {hour * 60 + minute for hour in hours}


def _unwrapped(answer: str) -> str:
    r"""An answer without dollars, `\text{...}` around its parts, and a full stop."""
    text = _WRAPPED.sub(r"\1", in_latex(answer).strip().strip("$"))
    return text.strip().removesuffix(".")
