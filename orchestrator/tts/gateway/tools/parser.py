"""Calls of tools in the text of a sample, while it comes. Pure.

Text that is no call is passed on as soon as it cannot become the beginning of one; a call is given
when it is complete. Something that begins like a call and is none (no JSON, a name that is no
tool's) stays text. White space around calls is dropped. The result does not depend on how the text
is cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from ..openai.messages import ToolCall
from .forms import ToolForm, new_call

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_AFTER_NAME = re.compile(r"\s*(?:\[CALL_ID\][A-Za-z0-9_-]{0,64})?(?:\[ARGS\])?\s*")
_MARKS = ("[ARGS]", "[CALL_ID]")


class _NoCall(Exception):
    """The supposed call is none: its number of characters that are text."""

    def __init__(self, characters: int) -> None:
        self.characters = characters


class CallParser:
    """The text and the calls of one sample."""

    def __init__(self, form: ToolForm, names: Collection[str], *, max_calls: int) -> None:
        """`names` are the tools; calls after the first `max_calls` are dropped."""
        self._form = form
        self._names = frozenset(names)
        self._max_calls = max_calls
        self._buffer = ""
        """Input that may be text or a call."""
        self._in_call = False
        self._spaces = ""
        """White space that is dropped if a call follows."""
        self._has_text = False
        self.calls: list[ToolCall] = []
        self._scan = JsonEnd()

    def feed(self, text: str) -> tuple[str, list[ToolCall]]:
        """The gain of further text: text that is no call, and calls."""
        self._buffer += text
        return self._read(at_end=False)

    def end(self) -> tuple[str, list[ToolCall]]:
        """Held-back text, as the text ends here."""
        text, calls = self._read(at_end=True)
        if not self.calls:
            text += self._spaces
        self._spaces = ""
        return text, calls

    def _read(self, *, at_end: bool) -> tuple[str, list[ToolCall]]:
        passed, before = "", len(self.calls)
        while self._buffer:
            if not self._in_call:
                start = self._opening(at_end)
                passed += self._pass_on(self._buffer[:start])
                self._buffer = self._buffer[start:]
                if not self._in_call:
                    break
            try:
                end = self._call(at_end)
            except _NoCall as error:
                passed += self._pass_on(self._buffer[: error.characters])
                self._buffer = self._buffer[error.characters :]
                self._in_call = False
                self._scan = JsonEnd()
                continue
            if end is None:
                break
            self._buffer, self._in_call, self._scan = self._buffer[end:], False, JsonEnd()
            self._spaces = ""
        return passed, self.calls[before:]

    def _pass_on(self, text: str) -> str:
        text = self._spaces + text
        passed = text.rstrip()
        self._spaces = text[len(passed) :]
        self._has_text = self._has_text or bool(passed)
        return passed

    def _opening(self, at_end: bool) -> int:
        """Where the buffer may stop to be text; `_in_call` if a call seems to begin there."""
        opener, buffer = self._form.opener, self._buffer
        at = buffer.find(opener)
        if self._form.bare and not self._has_text:
            brace = len(buffer) - len(buffer.lstrip())
            if buffer[brace : brace + 1] == "{" and (at < 0 or brace < at):
                at = brace
        if at >= 0:
            self._in_call = True
            return at
        if at_end:
            return len(buffer)
        for length in range(min(len(opener) - 1, len(buffer)), 0, -1):
            if opener.startswith(buffer[-length:]):
                return len(buffer) - length
        return len(buffer)

    def _call(self, at_end: bool) -> int | None:
        """The end of calls that begin the buffer; None: more must come. Raises _NoCall."""
        buffer, form = self._buffer, self._form
        start = len(form.opener) if buffer.startswith(form.opener) else 0
        start += _spaces(buffer, start)
        if start == len(buffer):
            return self._more(at_end)
        name = ""
        if form.kind == "mistral" and buffer[start] not in "[{":
            match = _NAME.match(buffer, start)
            if match is None:
                raise _NoCall(start)
            name, start = match[0], match.end()
            between = _AFTER_NAME.match(buffer, start)
            start = between.end() if between else start
            if start == len(buffer) or any(mark.startswith(buffer[start:]) for mark in _MARKS):
                return self._more(at_end)
        opens = buffer[start]
        if opens != "{" and not (opens == "[" and form.kind == "mistral" and not name):
            raise _NoCall(start)
        end = self._scan.find(buffer, start)
        if end is None:
            return self._more(at_end)
        after = self._close(end, at_end)
        if after is not None:
            self._take(name, start, end)
        return after

    def _more(self, at_end: bool) -> int | None:
        """None, as more must come; if nothing does, all of it is text."""
        if at_end:
            raise _NoCall(len(self._buffer))
        return None

    def _close(self, end: int, at_end: bool) -> int | None:
        """Where the text after a call begins, behind what closes it; None: more must come."""
        buffer, closer = self._buffer, self._form.closer
        after = end + _spaces(buffer, end)
        if self._form.kind == "llama":
            closer = ";"
        if not closer or (at_end and after == len(buffer)):
            return end
        if buffer.startswith(closer, after):
            return after + len(closer)
        return None if not at_end and closer.startswith(buffer[after:]) else end

    def _take(self, name: str, start: int, end: int) -> None:
        try:
            value = json.loads(self._buffer[start:end], strict=False)
            pairs = [(name, value)] if name else list(map(self._read_call, _listed(value)))
            calls = [(each, _arguments(arguments)) for each, arguments in pairs]
            if not self._names.issuperset(each for each, _ in calls):
                raise ValueError
        except (ValueError, RecursionError):
            raise _NoCall(end) from None
        for each, arguments in calls:
            if len(self.calls) < self._max_calls:
                self.calls.append(new_call(each, arguments))

    def _read_call(self, value: Any) -> tuple[str, Any]:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise ValueError
        other = "parameters" if self._form.arguments == "arguments" else "arguments"
        return value["name"], value.get(self._form.arguments, value.get(other, {}))


class JsonEnd:
    """Where a JSON object or array ends, in a text that grows: each character is read once."""

    def __init__(self) -> None:
        self._at: int | None = None
        self._depth = 0
        self._in_text = False
        self._escaped = False

    def find(self, buffer: str, start: int) -> int | None:
        """The place after the value that begins at `start`; None: it is not there yet."""
        at = start if self._at is None else self._at
        for place in range(at, len(buffer)):
            char = buffer[place]
            if self._in_text:
                if self._escaped:
                    self._escaped = False
                elif char == "\\":
                    self._escaped = True
                elif char == '"':
                    self._in_text = False
            elif char == '"':
                self._in_text = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    self._at = place  # asked again, it is found again
                    self._depth += 1
                    return place + 1
        self._at = len(buffer)
        return None


def _listed(value: Any) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ValueError
    return values


def _arguments(value: Any) -> str:
    """The arguments as JSON text; ValueError unless they are an object."""
    if isinstance(value, str):
        value = json.loads(value or "{}", strict=False)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise ValueError
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _spaces(text: str, start: int) -> int:
    end = start
    while end < len(text) and text[end].isspace():
        end += 1
    return end - start
