"""Where a model's thinking begins and ends: its marks, and whether a prompt has opened it.

A chain of a model that thinks is its thinking and, behind that, its answer. The marks around the
thinking are those of a family (thinking_families.py) that the chat template writes, or those that
the deployment states. A template's prompt may open the thinking itself, or close it at once, by its
variables (`enable_thinking: false`) or by what its messages say (`/no_think`), so this is measured
on each chat as it is. Where it does neither, the model opens it, unless thinking has to be switched
on (`enable_thinking: true` opens it, or the template reads `thinking`); then the mark is written
behind the prompt, so that every chain begins inside its thinking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tts.base.errors import CheckpointError

from .thinking_families import FAMILIES, SWITCHES, Marks, State, hints_of, spelled_by, tags
from .tokenizer import Tokenizer, end_of

if TYPE_CHECKING:
    from .spec.generator import ThinkingSpec

_ASKED: Sequence[Mapping[str, Any]] = ({"role": "user", "content": "What is it?"},)
_HERE = "\ufdd1"
"""Marks a place in messages; no text holds this noncharacter."""


@dataclass(frozen=True)
class Thinking:
    """How a generator's thinking ends, in token ids and in text."""

    tokenizer: Tokenizer
    marks: Marks
    closing_ids: tuple[int, ...]
    """What is written where the budget ends: the closing text."""
    budget: int | None
    """Most tokens of the thinking, the closing text included; None: no limit of its own."""
    paragraph: int | None
    """The least tokens of a step of the thinking; None: all of it is one step."""
    starts_open: bool
    """Whether the template's prompt ends inside it."""

    @cached_property
    def stop_words(self) -> tuple[tuple[int, ...], ...]:
        """What ends a request for thinking: the ids that spell a closing mark by itself."""
        return tuple(tuple(self.tokenizer.encode(mark)) for mark in self.marks.closings)

    @cached_property
    def closes_by_token(self) -> bool:
        """Whether the closing mark is a token of its own, which no other text spells."""
        word, *others = self.stop_words
        return not others and len(word) == 1 and word[0] in self.tokenizer.added_ids

    def end(self, ids: Sequence[int]) -> int | None:
        """The number of ids up to the end of the closing mark; None where it is missing."""
        if self.closes_by_token:
            ((mark,),) = self.stop_words
            return ids.index(mark) + 1 if mark in ids else None
        spelled = self.tokenizer.spelled
        ends = (end_of(mark, ids, spelled) for mark in self.marks.closings)
        return min((end for end in ends if end is not None), default=None)

    def prompt(self, rendered: str) -> str:
        """A rendered chat to which the model is to answer, ending inside the thinking."""
        return rendered if self.starts_open else rendered + self.marks.opens


def thinking_of(
    tokenizer: Tokenizer,
    spec: ThinkingSpec,
    messages: Sequence[Mapping[str, Any]] = _ASKED,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    may_be_off: bool = False,
    section: str = "generator.thinking",
) -> Thinking | None:
    """How a model thinks that answers a chat; None if it does not, or if that is switched off.

    `may_be_off`: the template or a message may do so, whatever the section says.

    Raises CheckpointError where the deployment says otherwise than the template, or its closing
    text does not close the thinking or does not fit into its budget.
    """
    role = section.partition(".")[0]
    family = _family(tokenizer)
    state = _state(tokenizer, family, messages, tools)
    if not spec.enabled:
        if family and state == "open":
            raise CheckpointError(
                f"{section}.enabled is false, but the chat template of "
                f"{tokenizer.checkpoint} ends its prompt inside {family.opens}.",
                hint="Switch it off by the template's own variable in "
                f"{role}.chat_template_kwargs, or leave {section} out.",
            )
        return None
    marks = _marks(tokenizer, spec)
    if marks != family:
        if family and family.opens != spec.opens and state == "open":
            raise CheckpointError(
                f"{section}.opens is {spec.opens!r}, but the chat template of "
                f"{tokenizer.checkpoint} opens the thinking with {family.opens!r}.",
                hint="Leave opens and closes out: they are read from the template.",
            )
        state = _state(tokenizer, marks, messages, tools)
    if marks is None or state == "closed":
        if marks and may_be_off:
            return None
        if spec.model_fields_set and (stated := sorted(spec.model_dump(exclude_defaults=True))):
            why = "writes no marks of thinking" if marks is None else "switches thinking off"
            raise CheckpointError(
                f"{section} has {', '.join(stated)}, but the chat template of "
                f"{tokenizer.checkpoint} {why}.",
                hint="Leave the section out, or "
                + (
                    "state thinking.opens and thinking.closes."
                    if marks is None
                    else f"change {role}.chat_template_kwargs, or what the system prompt says."
                ),
            )
        return None
    return _made(tokenizer, spec, marks, section, is_open=state == "open")


def continued_thinking(
    tokenizer: Tokenizer, spec: ThinkingSpec, messages: Sequence[Mapping[str, Any]]
) -> Thinking | None:
    """How a model thinks that continues a last message; None: behind it. Raises CheckpointError."""
    marks = _marks(tokenizer, spec)
    if not (spec.enabled and marks):
        return None
    state = marks.state(_prompt_end(tokenizer, messages, continues=True))
    section = "generator.thinking"
    return _made(tokenizer, spec, marks, section, is_open=True) if state == "open" else None


def _marks(tokenizer: Tokenizer, spec: ThinkingSpec) -> Marks | None:
    return tags(spec.opens, spec.closes) if spec.opens and spec.closes else _family(tokenizer)


def _made(
    tokenizer: Tokenizer, spec: ThinkingSpec, marks: Marks, section: str, *, is_open: bool
) -> Thinking:
    text = marks.closing_text if spec.closing_text is None else spec.closing_text
    if max(map(text.count, marks.closings)) != 1:
        raise CheckpointError(
            f"{section}.closing_text is {text!r:.200}, which must have {marks.closes!r} once.",
            hint="It must close the thinking; what follows it is the answer.",
        )
    closing = tuple(tokenizer.encode(text))
    if spec.budget_tokens is not None:
        require_budget(f"{section}.budget_tokens", spec.budget_tokens, len(closing))
    paragraph = spec.step_tokens if spec.steps == "paragraphs" else None
    return Thinking(tokenizer, marks, closing, spec.budget_tokens, paragraph, is_open)


def require_budget(name: str, tokens: int, closing: int) -> None:
    """Raise CheckpointError for a budget into which the closing text does not fit."""
    if tokens < closing:
        raise CheckpointError(
            f"{name} is {tokens}, less than the {closing} tokens of the text that closes the "
            "thinking.",
            hint=f"Give at least {closing}, or a shorter thinking.closing_text.",
        )


def unknown_thinking(tokenizer: Tokenizer, spec: ThinkingSpec) -> list[str]:
    """What in a chat template looks as if its model thought, where no marks of that are known."""
    if not spec.enabled or _marks(tokenizer, spec):
        return []
    return hints_of(tokenizer.chat_template, tokenizer.chat_variables)


def own_marks(tokenizer: Tokenizer) -> frozenset[str]:
    """The marks of thinking that a chat template looks for in what the assistant has said."""
    family = _family(tokenizer)
    marks = {family.opens, *family.closings} if family else set()
    with suppress(CheckpointError):  # of one that is missing, which is said where it is rendered
        marks |= spelled_by(tokenizer.chat_template)
    return frozenset(marks)


def thinks_first(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether what a model writes behind a chat's prompt is thinking, and not an answer."""
    marks = _family(tokenizer)
    state = _state(tokenizer, marks, messages) if marks else "closed"
    return state == "open" or (state == "none" and "enable_thinking" in tokenizer.chat_variables)


def _state(
    tokenizer: Tokenizer,
    marks: Marks | None,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
) -> State:
    """Where the prompt of a chat ends; closed as well where thinking is not switched on."""
    if marks is None:
        return "none"
    state = marks.state(_prompt_end(tokenizer, messages, tools))
    return "closed" if state == "none" and not _opens_by_itself(tokenizer, marks) else state


@lru_cache(maxsize=16)
def _opens_by_itself(tokenizer: Tokenizer, marks: Marks) -> bool:
    """Whether the model opens the thinking where its prompt says nothing of it."""
    switches = SWITCHES & tokenizer.chat_variables
    if not switches:
        return True
    on, off = (
        marks.state(_prompt_end(tokenizer, variables=dict.fromkeys(switches, value)))
        for value in (True, False)
    )
    if "open" in (on, off) or off == "closed":  # its prompt says what is not the model's choice
        return on != "open"
    kwargs = tokenizer.template_kwargs
    values = [kwargs[name] for name in switches if name in kwargs]
    return False not in values and (bool(values) or "thinking" not in switches)


@lru_cache(maxsize=16)
def _family(tokenizer: Tokenizer) -> Marks | None:
    """The family whose marks the chat template spells, or puts together in a prompt."""
    try:
        template = tokenizer.chat_template
        for marks in FAMILIES:
            if any(sign in template for sign in (marks.opens, *marks.signs)):
                return marks
        if not hints_of(template, tokenizer.chat_variables):
            return None
        switches = SWITCHES & tokenizer.chat_variables
        prompt = _prompt_end(tokenizer, variables=dict.fromkeys(switches, True))
    except CheckpointError:  # none, or one that fails, which is said where a chat is rendered
        return None
    return next((marks for marks in FAMILIES if marks.opens in prompt), None)


def _prompt_end(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]] = _ASKED,
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    variables: Mapping[str, Any] = MappingProxyType({}),
    continues: bool = False,
) -> str:
    """What a prompt says behind the last message, or with `continues` behind the one before it."""
    last = len(messages) - 1
    places = {last, last - 1} if continues else {last}
    marked = [
        {**each, "content": f"{each['content']}{_HERE}"} if place in places else each
        for place, each in enumerate(messages)
    ]
    text = tokenizer.chat(marked, generation_prompt=not continues, tools=tools, variables=variables)
    if continues:
        text = text.rpartition(_HERE)[0]
    return text.rpartition(_HERE)[2]
