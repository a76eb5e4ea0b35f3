"""The table of families of models that think, by the marks around their thinking. Pure.

To add a family, add a row to `FAMILIES`. A template is of the first family whose opening mark, or
another sign, it spells or writes into a prompt; `hints_of` names what looks like thinking in a
template of none.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

State = Literal["open", "closed", "none"]
"""Whether a prompt ends inside the thinking, behind it, or says nothing of it."""


@dataclass(frozen=True)
class Marks:
    """What stands around the thinking of a family of models."""

    opens: str
    closes: str
    closing_text: str
    """What closes the thinking where a budget ends it."""
    also_closes: tuple[str, ...] = ()
    """Other spellings of the closing mark, which the model may write."""
    closed_in_prompt: str = ""
    """What closes the thinking in a prompt, where that is less than the closing mark."""
    signs: tuple[str, ...] = ()
    """What else shows the family in a template."""

    @property
    def closings(self) -> tuple[str, ...]:
        """Every spelling of the closing mark."""
        return self.closes, *self.also_closes

    def state(self, prompt: str) -> State:
        """Where the end of a prompt stands."""
        open_at = prompt.rfind(self.opens)
        closed = prompt.rfind(self.closed_in_prompt or self.closes)
        if open_at == closed == -1 or (self.closed_in_prompt and open_at == -1):
            return "none"
        return "open" if open_at > closed else "closed"

    def behind(self, text: str) -> str | None:
        """What a text says behind its last closing mark; None where it has none."""
        ends = [at + len(mark) for mark in self.closings if (at := text.rfind(mark)) >= 0]
        return text[max(ends) :] if ends else None


def tags(opens: str, closes: str) -> Marks:
    """Marks that stand on lines of their own."""
    return Marks(opens, closes, f"\n{closes}\n\n")


_FINAL = "<|end|><|start|>assistant<|channel|>final"
_SOLAR_CONTENT = "<|end|><|begin|>assistant<|content|>"
_K3_RESPONSE = "<|close|>think<|sep|><|open|>response<|sep|>"
FAMILIES = (
    tags("<think>", "</think>"),  # Qwen3, R1, SmolLM3, Phi-4, Nemotron, GLM
    tags("[THINK]", "[/THINK]"),  # Ministral, Magistral
    tags("◁think▷", "◁/think▷"),  # Kimi-VL
    tags("<seed:think>", "</seed:think>"),  # Seed-OSS
    tags("<think:opensource>", "</think:opensource>"),  # Hy3
    tags("<mm:think>", "</mm:think>"),  # MiniMax-M3
    tags("<|START_THINKING|>", "<|END_THINKING|>"),  # Command
    tags("<|channel>thought", "<channel|>"),  # Gemma 4, which has <|think|> in its system turn
    Marks("<|open|>think<|sep|>", _K3_RESPONSE, _K3_RESPONSE),  # Kimi-K3
    Marks("<|think|>", _SOLAR_CONTENT, _SOLAR_CONTENT, closed_in_prompt="<|end|>"),  # Solar-Open
    Marks(  # Apriel
        "Here are my reasoning steps:\n",
        "[BEGIN FINAL RESPONSE]",
        "\n[BEGIN FINAL RESPONSE]\n",
        signs=("[BEGIN FINAL RESPONSE]",),
    ),
    Marks(  # gpt-oss, whose answer may have a form
        "<|channel|>analysis<|message|>",
        f"{_FINAL}<|message|>",
        f"{_FINAL}<|message|>",
        (f"{_FINAL} <|constrain|>json<|message|>", f"{_FINAL}<|constrain|>json<|message|>"),
    ),
)
"""The marks of published models."""

SWITCHES = frozenset({"enable_thinking", "thinking"})
"""Variables of templates that switch thinking on and off."""
_HINTS = SWITCHES | {"reasoning_effort", "thinking_effort", "thinking_mode", "thinking_budget"}
_FIELD = "reasoning_content"
_TEXT_SWITCH = re.compile(r"(?<!\S)/(?:no_think|nothink|think)(?!\S)")
_LOOKS_LIKE_A_MARK = re.compile(
    r"[<\[◁][^\s/<>\[\]◁▷'\"]{0,20}(?:think|reason)[^\s<>\[\]◁▷'\"]{0,20}[>\]▷]", re.I
)


def answer_part(text: str) -> str | None:
    """What a text says behind its thinking, by the marks of any family; None if it is unclosed."""
    for marks in FAMILIES:
        behind = marks.behind(text)
        if (text if behind is None else behind).lstrip().startswith(marks.opens):
            return None
        if behind is not None:
            return behind
    return text


def spelled_by(template: str) -> frozenset[str]:
    """The marks of any family that a template's source spells."""
    marks = {mark for family in FAMILIES for mark in (family.opens, *family.closings)}
    return frozenset(mark for mark in marks if mark in template)


def hints_of(template: str, variables: Collection[str]) -> list[str]:
    """What in a template, which reads these variables, looks as if its model thought."""
    marks = {match[0] for match in _LOOKS_LIKE_A_MARK.finditer(template)}
    field = {_FIELD} if _FIELD in template else set()
    return sorted(_HINTS & set(variables)) + sorted(marks | field)


def without_switches(text: str, template: str) -> str:
    """A text without the words, such as /no_think, that its template takes out of messages."""
    return _TEXT_SWITCH.sub(lambda word: "" if word[0] in template else word[0], text)
