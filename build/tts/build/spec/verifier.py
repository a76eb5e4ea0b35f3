"""Section `verifier`: the model that scores steps, and how it is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ..input_files import require_path
from .engine import EngineSpec
from .execution import TextVerifier
from .role import RoleSpec
from .section import Count, FilePath, Section
from .verifier_formats import FORMATS, FormatFacts, FormatField, HeadKind

if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[tuple(FORMATS)]
ReadsThinking = Literal["none", "all"] | Count
PROMPT_PLACES = ("{question}", "{steps}", "{step}")
"""What a prompt holds, in this order: the KV cache then serves all but the end of it."""


class Labels(Section):
    """The two label strings of the verifier; each must be one token of its tokenizer."""

    positive: Annotated[str, Field(min_length=1)] = "+"
    """The label of a good step; the default is that of the format."""
    negative: Annotated[str, Field(min_length=1)] = "-"
    """The label of a bad step; the default is that of the format."""

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.positive == self.negative:
            raise ValueError(f"positive and negative are both {self.positive!r}; they must differ")
        return self


class Template(Section):
    """The dialogue of a verifier of format custom; the texts are sent verbatim.

    It reads: head, first step, answer, turn, second step, answer, ... ; a step's score is read
    right after its `answer`.
    """

    head: str
    """Everything before the first step; {question} stands for the question."""
    answer: str
    """The text after a step, up to where its score is read."""
    turn: str
    """What follows up to the next step; {label} in front stands for the positive label."""

    @field_validator("head")
    @classmethod
    def _asks(cls, head: str) -> str:
        if head.count("{question}") != 1:
            raise ValueError("must hold {question} exactly once")
        return head

    @field_validator("head", "answer", "turn")
    @classmethod
    def _places(cls, text: str, info: ValidationInfo) -> str:
        allowed = {"head": "{question}", "turn": "{label}"}.get(info.field_name or "")
        for place in ("{question}", "{label}", "{step}"):
            if place != allowed and place in text:
                raise ValueError(f"must not hold {place}")
        if "{label}" in text.removeprefix("{label}"):
            raise ValueError("may hold {label} once, at its very beginning")
        return text


def checked_prompt(prompt: str) -> str:
    """A prompt without white space around it, which chat templates strip; raises ValueError."""
    rest = prompt
    for place in PROMPT_PLACES:
        _, found, rest = rest.partition(place)
        if not found or prompt.count(place) > 1:
            raise ValueError(
                f"must hold {', '.join(PROMPT_PLACES)} once each, in this order; {place} "
                + ("comes twice" if prompt.count(place) > 1 else "is not where it should be")
            )
    return prompt.strip()


class VerifierRole(RoleSpec):
    """How the process reward model that scores steps is asked, wherever it runs."""

    in_flight_tokens: Count
    """Upper bound of prompt tokens that the orchestrator keeps in flight (see `tts tune`)."""
    format: FormatName = "rlhflow"
    """How questions and steps are presented to the verifier (docs/reference/verifiers.md)."""
    head: HeadKind | None = None
    """What the verifier judges with; unset: recognised from its config.json."""
    step_tag: Annotated[str, Field(min_length=1)] | None = None
    """The token after which a step's score is read (format math-shepherd only; default "ки")."""
    template: Template | None = None
    """The dialogue of format custom."""
    prompt_file: FilePath | None = None
    """A file that holds `prompt`, relative to the deployment file."""
    prompt: Annotated[str, Field(max_length=100_000)] | None = None
    """The question about a step that an instruct model is asked, with the places {question},
    {steps} and {step} (format prompted only)."""
    system_prompt: str | None = None
    """The text that the model reads before the question (format likelihood only)."""
    labels: Labels = Labels()
    """The two label tokens; the default is that of the format."""
    reads_thinking: ReadsThinking = "none"
    """Whether it reads the generator's thinking as steps, or so many last tokens of each."""

    @property
    def facts(self) -> FormatFacts:
        """The facts about its format."""
        return FORMATS[self.format]

    @model_validator(mode="before")
    @classmethod
    def _labels_of_its_format(cls, data: Any) -> Any:
        if isinstance(data, dict) and "labels" not in data and isinstance(data.get("format"), str):
            facts = FORMATS.get(data["format"])
            if facts and facts.labels and facts.labels != ("+", "-"):
                return data | {"labels": dict(zip(Labels.model_fields, facts.labels, strict=True))}
        return data

    @field_validator("prompt")
    @classmethod
    def _asks(cls, prompt: str | None) -> str | None:
        return prompt if prompt is None else checked_prompt(prompt)

    @model_validator(mode="after")
    def _fields_of_its_format(self) -> Self:
        for field, given, noun, need in self._own_fields():
            if given and not self.facts.has(field):
                having = ", ".join(name for name, facts in FORMATS.items() if facts.has(field))
                raise ValueError(
                    f"{given}, but format is {self.format}; only format {having} has {noun}"
                )
            if not given and self.facts.needs == field:
                raise ValueError(f"format is {self.format}, so {need}")
        if self.facts.labels is None and self.labels != Labels():
            raise ValueError(f"labels are given, but format {self.format} reads none; remove them")
        return self

    def _own_fields(self) -> Iterator[tuple[FormatField, str, str, str]]:
        """The fields of some formats: that one is given, its noun, and that it is required."""
        tag = f"step_tag is {self.step_tag!r}" if self.step_tag is not None else ""
        yield "step_tag", tag, "a step tag", "step_tag is required"
        template = "template is given" if self.template is not None else ""
        yield "template", template, "one", "template is required: head, answer and turn"
        prompt = "a prompt is given" if self.prompt_file or self.prompt is not None else ""
        need = "prompt_file is required: the text that asks whether a step is right"
        yield "prompt", prompt, "one", f"{need} (docs/reference/verifiers.md)"
        system = "system_prompt is given" if self.system_prompt is not None else ""
        yield "system_prompt", system, "one", "system_prompt is required"

    @model_validator(mode="after")
    def _budget(self) -> Self:
        if self.in_flight_tokens < self.max_seq_len:
            raise ValueError(
                f"in_flight_tokens is {self.in_flight_tokens} but max_seq_len is "
                f"{self.max_seq_len}; the budget must let one full request through"
            )
        return self


_FUNCTION = re.compile(r".+\.py:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class VerifierFunction(TextVerifier):
    """A Python function that scores steps in the program's own process: no model, and no engine."""

    function: str
    """FILE.py:NAME, relative to the deployment file: (question, steps) -> score of the last step,
    or (chains) for a batch (docs/start/your-own-models.md)."""

    @property
    def named(self) -> str:
        """FILE.py:NAME."""
        return self.function

    @field_validator("function")
    @classmethod
    def _names_one(cls, function: str) -> str:
        require_path(function)
        if not _FUNCTION.fullmatch(function):
            raise ValueError("must be FILE.py:NAME, such as my_prm.py:score")
        return function

    def below(self, folder: Path) -> VerifierFunction:
        """The same with an absolute path, from the folder where a relative one starts."""
        file, _, name = self.function.rpartition(":")
        path = (folder / Path(file).expanduser()).resolve()
        return self.model_copy(update={"function": f"{path}:{name}"})


class VerifierSpec(VerifierRole, EngineSpec):
    """The process reward model that scores steps, compiled."""

    @model_validator(mode="after")
    def _can_be_compiled(self) -> Self:
        if why := self.facts.not_compiled:
            raise ValueError(why)
        return self
