"""Chats as text without running the chat template, where it only puts its own text around messages.

A template runs in a process of its own, for which the event loop would wait: on a busy machine
longer than everything else that is done for a request takes. Most templates put fixed text between
the messages, which depends on the roles alone; some strip each message. So for each sequence of
roles the template is asked twice, with messages that are known, and if both answers are of that
kind it is not asked again.

What a template decides by a message's text it finds by a mark such as `</think>` or `[INST]`: a
chat with such a character goes to the template, and so do all chats of one that asks for the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from tts.build.tokenizer import Message, Tokenizer

_PLAIN = re.compile(r"(?=.*\S)[^<\[]*", re.DOTALL)
"""Messages that no template decides anything by."""
_TIME = re.compile(r"strftime|\bnow\s*\(")
"""How a template asks for the time."""
_MOST_SHAPES = 256
_MOST_MESSAGES = 16
"""Messages of a chat that is worth a shape of its own."""

Treatment = Callable[[str], str]


@dataclass(frozen=True)
class _Shape:
    """The fixed texts, one more than there are messages, and the treatment of each message."""

    literals: tuple[str, ...]
    treatments: tuple[Treatment, ...]

    def fill(self, contents: Sequence[str]) -> str:
        """The chat with these messages."""
        parts = [self.literals[0]]
        for content, treat, literal in zip(
            contents, self.treatments, self.literals[1:], strict=True
        ):
            parts += (treat(content), literal)
        return "".join(parts)


class ChatShapes:
    """The chats of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._shapes: dict[tuple[bool, tuple[str, ...]], _Shape | None] = {}
        self._asks_time: bool | None = None

    def render(self, messages: Sequence[Message], *, generation_prompt: bool) -> str:
        """The text that `Tokenizer.chat` gives, and its errors."""
        contents = [message["content"] for message in messages]
        if len(messages) <= _MOST_MESSAGES and all(map(_PLAIN.fullmatch, contents)):
            key = generation_prompt, tuple([message["role"] for message in messages])
            if key not in self._shapes and len(self._shapes) < _MOST_SHAPES:
                self._shapes[key] = self._learn(key[1], generation_prompt)
            if shape := self._shapes.get(key):
                return shape.fill(contents)
        return self.tokenizer.chat(messages, generation_prompt=generation_prompt)

    def _learn(self, roles: Sequence[str], generation_prompt: bool) -> _Shape | None:
        if self._asks_time is None:
            self._asks_time = _TIME.search(self.tokenizer.chat_template) is not None
        if self._asks_time:
            return None

        def rendered(contents: Sequence[str]) -> str:
            messages = [
                {"role": role, "content": content}
                for role, content in zip(roles, contents, strict=True)
            ]
            return self.tokenizer.chat(messages, generation_prompt=generation_prompt)

        marks = [f"Zq{place}qZ" for place in range(len(roles))]
        literals = _around(rendered(marks), marks)
        if literals is None:
            return None
        ragged = [f" \n a\tb {mark}. \N{BULLET} \n\n" for mark in marks]
        wanted = rendered(ragged)
        kinds = sorted(set(roles))
        treatments: tuple[Treatment, ...] = (str, str.strip)
        for each in product(treatments, repeat=len(kinds)):
            by_role = dict(zip(kinds, each, strict=True))
            shape = _Shape(literals, tuple(by_role[role] for role in roles))
            if shape.fill(ragged) == wanted:
                return shape
        return None


def _around(text: str, marks: Sequence[str]) -> tuple[str, ...] | None:
    """The texts around the marks, if each is there once, in order."""
    literals = []
    for mark in marks:
        before, found, text = text.partition(mark)
        if not found or mark in text:
            return None
        literals.append(before)
    return (*literals, text)
