"""Verdicts in the text of a critique: what a model wrote becomes a score, or none.

A verdict is the group of a regular expression's last match, a field of the last JSON object that
has it, or the word behind a text's last place. It is a label, or a number on a scale. A critique
may hold anything: what is no verdict is None. Only its end is read, in bounded time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from tts.base.errors import ConfigError
from tts.base.extras import how_to_install

from ..spec.critique import VerdictSpec

TAIL = 20_000
"""Characters at the end of a critique in which its verdict is looked for."""
LABELS: Mapping[str, float] = {
    **dict.fromkeys(("right", "yes", "correct", "true", "pass"), 1.0),
    **dict.fromkeys(("wrong", "no", "incorrect", "false", "fail"), 0.0),
}
"""What words are worth unless the deployment names others."""
_OBJECT = re.compile(r'\{\s*"')
_IN_VAIN = 10 * TAIL
"""Characters that are read of what begins like a JSON object and is none, all together."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII)
_WORD = re.compile(r"\W{0,10}?([+-]?\.?\w[\w.]{0,99})")
"""The next word, behind the marks around it: `: **right**.`"""

Reader = Callable[[str], float | None]


def reader(spec: VerdictSpec) -> Reader:
    """What reads the verdict of a critique's text; raises ConfigError for an expression.

    It gives a score from 0 to 1, or None, and raises nothing.
    """

    def read(text: str) -> float | None:
        tail = text[-TAIL:].encode(errors="replace").decode()
        verdict = find(tail)
        return None if verdict is None else _score(verdict, spec)

    if spec.expression is not None:
        find = _by_expression(spec.expression)
    elif spec.json_field is not None:
        find = _by_field(spec.json_field)
    else:
        find = _by_place(spec.after or "", spec)
    return read


def _score(verdict: Any, spec: VerdictSpec) -> float | None:
    if isinstance(verdict, bool):
        return float(verdict)
    number = verdict if isinstance(verdict, int | float) else None
    if isinstance(verdict, str):
        word = verdict.strip().strip(".").casefold()
        labels = spec.labels or LABELS
        for label, weight in labels.items():
            if label.strip().casefold() == word:
                return weight
        number = float(word) if _NUMBER.fullmatch(word) else None
    worst, best = spec.scale
    if number is None or spec.labels or not min(worst, best) <= number <= max(worst, best):
        return None
    return (number - worst) / (best - worst)


def _by_expression(expression: str) -> Callable[[str], str | None]:
    name = "verifier.critique.verdict.expression"
    try:
        import re2
    except ImportError as error:
        raise ConfigError(
            f"{name} needs RE2, which is not installed.",
            hint=f"Install it: {how_to_install('filters')}",
        ) from error
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise ConfigError(
            f"{name}: RE2 does not read {expression!r:.200}: {reason}.",
            hint="Look-around and back references are not in its notation.",
        ) from None
    if compiled.groups != 1:
        raise ConfigError(
            f"{name} has {compiled.groups} groups; it must have one, which is the verdict.",
            hint="Write (?:...) around what only belongs together.",
        )

    def find(text: str) -> str | None:
        last = None
        for match in compiled.finditer(text):
            last = match.group(1)
        return last

    return find


def _by_field(name: str) -> Callable[[str], Any]:
    def find(text: str) -> Any:
        values: list[Any] = []

        def note(value: dict[str, Any]) -> None:
            if name in value:
                values.append(value[name])

        decoder = json.JSONDecoder(
            object_hook=note, parse_int=float, parse_constant=lambda constant: None
        )
        end = in_vain = 0
        while in_vain < _IN_VAIN and (begins := _OBJECT.search(text, end)):
            try:
                _, end = decoder.raw_decode(text, begins.start())
            except json.JSONDecodeError as error:
                in_vain += 100 + error.pos - begins.start()
                end = begins.start() + 1
            except RecursionError:
                in_vain += TAIL
                end = begins.start() + 1
        return values[-1] if values else None

    return find


def _by_place(after: str, spec: VerdictSpec) -> Callable[[str], str | None]:
    place = after.casefold()

    def find(text: str) -> str | None:
        text = text.casefold()
        at = text.rfind(place)
        while at >= 0:
            match = _WORD.match(text, at + len(place))
            if match and _score(match.group(1), spec) is not None:
                return match.group(1)
            at = text.rfind(place, 0, at)
        return None

    return find
