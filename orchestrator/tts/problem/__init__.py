"""One question to solve, and the conversation before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Speaker = Literal["system", "user", "assistant"]
SPEAKERS: tuple[Speaker, ...] = get_args(Speaker)
_NAMES = {"user": "User", "assistant": "Assistant"}


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of a conversation before its question."""

    role: Speaker
    content: str


@dataclass(frozen=True, slots=True)
class Problem:
    """`answer` is the reference, None if there is none; `level` groups results in reports.

    `history` is the conversation up to the question, which is its last message. A system message
    in it takes the place of the deployment's system prompt. `chat_template_kwargs` are variables of
    the generator's chat template, such as `enable_thinking`; they go before the deployment's.
    `extra` is what else a verifier or the grader needs as JSON values, such as the tests of a code
    problem; no model reads it.
    """

    id: str
    question: str
    answer: str | None = None
    level: int | str | None = None
    history: tuple[Turn, ...] = ()
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def full_question(self) -> str:
        """The question with the earlier turns in front of it, as one text: what a verifier reads.

        Its dialogue has one question and the steps of one answer. System messages, which tell the
        generator how to answer, are left out.
        """
        turns = [turn for turn in self.history if turn.role != "system"]
        if not turns:
            return self.question
        turns.append(Turn("user", self.question))
        return "\n\n".join(f"{_NAMES[turn.role]}: {turn.content}" for turn in turns)


def digest_of(problems: Iterable[Problem]) -> str:
    """SHA-256 of the problems: ids, questions with the turns before them, and references."""
    digest = hashlib.sha256()
    for each in problems:
        turns = [[turn.role, turn.content] for turn in each.history]
        row: list[object] = [each.id, each.question, each.answer, turns]
        if each.chat_template_kwargs:
            row.append(each.chat_template_kwargs)
        if each.extra:
            row.append(["extra", each.extra])
        digest.update(json.dumps(row, sort_keys=True).encode() + b"\n")  # ASCII, whatever the text
    return digest.hexdigest()
