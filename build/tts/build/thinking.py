"""Where a model's thinking begins and ends: its marks, and whether a prompt has opened it.

A chain of a model that thinks is its thinking and, behind that, its answer. The marks around the
thinking are those of a family (`FAMILIES`) that the chat template writes, or those that the
deployment states. A template's prompt may open the thinking itself, or close it at once
(`enable_thinking: false`). Where it does neither, the model opens it, unless thinking has to be
switched on (`enable_thinking: true` opens it, or the template reads `thinking`); then the mark is
written behind the prompt, so that every chain begins inside its thinking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from .errors import CheckpointError

if TYPE_CHECKING:
    from .spec.thinking import ThinkingSpec
    from .tokenizer import Tokenizer


@dataclass(frozen=True)
class Marks:
    """What stands around the thinking of a family of models."""

    opens: str
    closes: str
    closing_text: str
    """What closes the thinking where a budget ends it."""


def _tags(opens: str, closes: str) -> Marks:
    return Marks(opens, closes, f"\n{closes}\n\n")


_TO_FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"
FAMILIES = (
    _tags("<think>", "</think>"),  # Qwen3, R1, SmolLM3, Phi-4, Nemotron, GLM
    _tags("[THINK]", "[/THINK]"),  # Ministral, Magistral
    _tags("◁think▷", "◁/think▷"),  # Kimi-VL
    _tags("<seed:think>", "</seed:think>"),  # Seed-OSS
    _tags("<|START_THINKING|>", "<|END_THINKING|>"),  # Command
    _tags("<|channel>thought", "<channel|>"),  # Gemma 4
    Marks("<|channel|>analysis<|message|>", _TO_FINAL, _TO_FINAL),  # gpt-oss
)
"""The marks of published models; the first family that a template writes is its own."""

State = Literal["open", "closed", "none"]
"""Whether a prompt ends inside the thinking, behind it, or says nothing of it."""


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
    opened: bool
    """Whether the template's prompt ends inside it."""

    @cached_property
    def close_ids(self) -> tuple[int, ...]:
        """The ids that spell the closing mark where nothing else does."""
        return tuple(self.tokenizer.encode(self.marks.closes))

    @cached_property
    def closes_by_token(self) -> bool:
        """Whether the closing mark is a token of its own, which no other text spells."""
        return len(self.close_ids) == 1 and self.close_ids[0] in self.tokenizer.added_ids

    @property
    def stop_words(self) -> tuple[tuple[int, ...], ...]:
        """What ends a request for thinking; other spellings are found in the text."""
        return (self.close_ids,)

    def end(self, ids: Sequence[int]) -> int | None:
        """The number of ids up to the end of the closing mark; None where it is missing."""
        if self.closes_by_token:
            (mark,) = self.close_ids
            return ids.index(mark) + 1 if mark in ids else None
        from .tokenizer import end_of  # the grader reads this module, and loads no tokenizer

        return end_of(self.marks.closes, ids, self.tokenizer.spelled)

    def prompt(self, rendered: str) -> str:
        """A rendered chat to which the model is to answer, ending inside the thinking."""
        return rendered if self.opened else rendered + self.marks.opens


def thinking_of(
    tokenizer: Tokenizer,
    spec: ThinkingSpec,
    *,
    may_be_off: bool = False,
    section: str = "generator.thinking",
) -> Thinking | None:
    """How a model thinks; None if it does not, or if its template has switched that off.

    `may_be_off`: the template may, whatever the section says.

    Raises CheckpointError where the deployment says otherwise than the template, or its closing
    text does not close the thinking or does not fit into its budget.
    """
    role = section.partition(".")[0]
    family = _family(tokenizer)
    state = state_at_the_end(tokenizer, family)
    if not spec.enabled:
        if family and state == "open":
            raise CheckpointError(
                f"{section}.enabled is false, but the chat template of "
                f"{tokenizer.checkpoint} ends its prompt inside {family.opens}.",
                hint="Switch it off by the template's own variable in "
                f"{role}.chat_template_kwargs, or leave {section} out.",
            )
        return None
    marks = family
    if spec.opens and spec.closes:
        marks = _tags(spec.opens, spec.closes)
        if family and family.opens != spec.opens and state == "open":
            raise CheckpointError(
                f"{section}.opens is {spec.opens!r}, but the chat template of "
                f"{tokenizer.checkpoint} opens the thinking with {family.opens!r}.",
                hint="Leave opens and closes out: they are read from the template.",
            )
        state = state_at_the_end(tokenizer, marks)
    if marks is None or state == "closed":
        if marks and may_be_off:
            return None
        if given := sorted(spec.model_dump(exclude_defaults=True)):
            why = "writes no marks of thinking" if marks is None else "switches thinking off"
            raise CheckpointError(
                f"{section} has {', '.join(given)}, but the chat template of "
                f"{tokenizer.checkpoint} {why}.",
                hint="Leave the section out, or "
                + (
                    "state thinking.opens and thinking.closes."
                    if marks is None
                    else f"change {role}.chat_template_kwargs."
                ),
            )
        return None
    text = marks.closing_text if spec.closing_text is None else spec.closing_text
    if marks.closes not in text:
        raise CheckpointError(
            f"{section}.closing_text is {text!r:.200}, without {marks.closes!r}.",
            hint="It must close the thinking; what follows it is the answer.",
        )
    closing = tuple(tokenizer.encode(text))
    if spec.budget_tokens is not None:
        require_budget(f"{section}.budget_tokens", spec.budget_tokens, len(closing))
    paragraph = spec.step_tokens if spec.steps == "paragraphs" else None
    return Thinking(tokenizer, marks, closing, spec.budget_tokens, paragraph, state == "open")


def require_budget(name: str, tokens: int, closing: int) -> None:
    """Raise CheckpointError for a budget into which the closing text does not fit."""
    if tokens < closing:
        raise CheckpointError(
            f"{name} is {tokens}, less than the {closing} tokens of the text that closes the "
            "thinking.",
            hint=f"Give at least {closing}, or a shorter thinking.closing_text.",
        )


def state_at_the_end(tokenizer: Tokenizer, marks: Marks | None) -> State:
    """Where a prompt of the chat template ends."""
    if marks is None:
        return "none"
    state = _state_of(_prompt_end(tokenizer), marks)
    if state == "none" and (switches := _SWITCHES & tokenizer.chat_variables):
        kwargs = tokenizer.template_kwargs
        given = [kwargs[name] for name in switches if name in kwargs]
        on = dict.fromkeys(switches, True)
        is_off = "thinking" in switches or _state_of(_prompt_end(tokenizer, on), marks) == "open"
        if False in given or (is_off and not given):
            return "closed"
    return state


def _state_of(prompt: str, marks: Marks) -> State:
    opened, closed = prompt.rfind(marks.opens), prompt.rfind(marks.closes)
    if opened == closed == -1:
        return "none"
    return "open" if opened > closed else "closed"


def thinks_first(tokenizer: Tokenizer) -> bool:
    """Whether what a model writes behind a prompt is thinking, and not an answer."""
    marks = _family(tokenizer)
    state = state_at_the_end(tokenizer, marks) if marks else "closed"
    return state == "open" or (state == "none" and "enable_thinking" in tokenizer.chat_variables)


def answer_part(text: str) -> str | None:
    """What a text says behind its thinking, by the marks of any family; None if it is unclosed."""
    for marks in FAMILIES:
        _, closed, behind = text.rpartition(marks.closes)
        if behind.lstrip().startswith(marks.opens):
            return None
        if closed:
            return behind
    return text


_SWITCHES = {"enable_thinking", "thinking"}
"""Variables of templates that switch thinking on and off."""


def _family(tokenizer: Tokenizer) -> Marks | None:
    """The family whose marks the chat template writes; one that takes them out opens none."""
    try:
        template = tokenizer.chat_template
    except CheckpointError:  # there is none, which is said where a chat is rendered
        return None
    return next((marks for marks in FAMILIES if marks.opens in template), None)


def _prompt_end(tokenizer: Tokenizer, variables: Mapping[str, Any] | None = None) -> str:
    """What a prompt says behind the question."""
    question = "What is it?"
    messages = [{"role": "user", "content": question}]
    text = tokenizer.chat(messages, generation_prompt=True, variables=variables or {})
    return text.rpartition(question)[2]
