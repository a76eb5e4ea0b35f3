r"""Times of day. math-verify drops the unit and divides: 4:30 a.m., 4:30 p.m. and 2:15 are one."""

from __future__ import annotations

import re

_WRAPPED = re.compile(r"\\(?:text|mathrm|textrm)\s*\{([^{}]*)\}")
_TIME = re.compile(
    r"(?P<hour>1?\d|2[0-3]):(?P<minute>[0-5]\d)(?:(?P<half>[ap])\.?m\.?)?", re.ASCII | re.IGNORECASE
)


def may_be_same_time(answer: str, other: str) -> bool | None:
    """Whether two times of day may be one; None unless both are and one says a.m. or p.m.

    Without that, "4:30" may as well be a ratio; beside a time it is one in either half of the day.
    """
    one, two = _parsed(answer), _parsed(other)
    if one is None or two is None or not (one["half"] or two["half"]):
        return None
    return not _minutes(one).isdisjoint(_minutes(two))


def _parsed(answer: str) -> re.Match[str] | None:
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
