"""What TensorRT-LLM's log of a start says of memory: numbers out of lines of known form.

The forms are data with their sources (contract/start_log.json).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from ..contract.facts import start_log_forms

_UNITS = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}


@dataclass(frozen=True)
class Seen:
    """One line of a known form."""

    form: str
    line: str
    numbers: Mapping[str, int]
    """Numbers by the name of their group in the pattern without its unit; sizes in bytes."""


def read_start_log(lines: Iterable[str]) -> list[Seen]:
    """Every line that has one of the known forms, in the log's order."""
    seen = []
    for line in lines:
        for form, pattern in _patterns().items():
            if found := pattern.search(line):
                numbers = dict(_number(name, text) for name, text in found.groupdict().items())
                seen.append(Seen(form, line.strip(), numbers))
                break
    return seen


@cache
def _patterns() -> Mapping[str, re.Pattern[str]]:
    return {name: re.compile(form.pattern, re.ASCII) for name, form in start_log_forms().items()}


def _number(name: str, text: str) -> tuple[str, int]:
    bare, _, unit = name.rpartition("_")
    if unit in ("gib", "mib"):
        return bare, round(float(text) * 1024 ** {"mib": 2, "gib": 3}[unit])
    if unit == "size":
        number, _, prefix = text.partition(" ")
        return bare, round(float(number) * 1024 ** _UNITS[prefix])
    return name, int(text)
