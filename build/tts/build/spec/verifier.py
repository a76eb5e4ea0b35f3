"""Section `verifier`: the model that scores steps, and how it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from .calibration import VerifierCalibration
from .critique import CritiqueSpec
from .engine import EngineSpec
from .section import Count, FilePath, RoleSpec, Section
from .verifier_formats import FIELD_WORDS, FORMATS, FormatFacts, HeadKind, Scores

if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[tuple(FORMATS)]
ReadsThinking = Literal["none", "all"] | Count
# without white space at its ends, as chat templates have it
Prompt = Annotated[str, Field(max_length=100_000), AfterValidator(str.strip)]
_OF_ITS_FORMAT: Any = None
PROMPT_PLACES = ("{question}", "{steps}", "{step}", "{criterion}")
"""What a prompt holds, in this order: the KV cache then serves all but the end of it."""


def _spaced(labels: Any) -> Any:
    """A list of labels, the best first, with weights from 1 to 0 in equal steps."""
    if not isinstance(labels, list):
        return labels
    if any(isinstance(each, list | dict) for each in labels):
        raise ValueError("must be texts, the best first, or a mapping of texts to weights")
    if repeated := [each for each in labels if labels.count(each) > 1]:
        raise ValueError(f"{repeated[0]!r} stands twice among the labels")
    return {label: 1 - place / max(1, len(labels) - 1) for place, label in enumerate(labels)}


def _graded(labels: dict[str, float]) -> dict[str, float]:
    if labels and len(set(labels.values())) < 2:
        raise ValueError("must be two labels or more, of different weights")
    return dict(sorted(labels.items(), key=lambda each: -each[1]))


def own_labels(form: Any) -> Mapping[str, float]:
    """The labels of a format with their weights; empty where it reads none, or is no format."""
    facts = FORMATS.get(form)
    return _spaced(list(facts.labels)) if facts and facts.labels else {}


Labels = Annotated[
    dict[Annotated[str, Field(min_length=1)], Annotated[float, Field(strict=True, ge=0, le=1)]],
    BeforeValidator(_spaced),
    AfterValidator(_graded),
]
"""Label tokens with their weights, the best first: a score is the weights' mean under the softmax
over the labels' logits."""


class Template(Section):
    """The dialogue of a verifier of format custom; the texts are sent verbatim.

    It reads: head, first step, answer, turn, second step, answer, ... ; a step's score is read
    right after its `answer`. Without `turn` it reads: head, all steps as one text, answer.
    """

    head: str
    """Everything before the first step; {question} stands for the question."""
    answer: str
    """The text after a step, up to where its score is read."""
    turn: str | None = None
    """What follows up to the next step; {label} in front stands for the positive label, {number}
    for the next step's number. Unset: the steps are one text, and `answer` follows the last one."""
    apart: bool = False
    """Whether each text and each step is encoded by itself, as TRL's PRMTrainer does."""

    @field_validator("head")
    @classmethod
    def _asks(cls, head: str) -> str:
        if head.count("{question}") != 1:
            raise ValueError("must hold {question} exactly once")
        return head

    @field_validator("head", "answer", "turn")
    @classmethod
    def _places(cls, text: str | None, info: ValidationInfo) -> str | None:
        allowed = {"head": ("{question}",), "turn": ("{label}", "{number}")}
        for place in ("{question}", "{label}", "{number}", "{step}"):
            if text and place in text and place not in allowed.get(info.field_name or "", ()):
                raise ValueError(f"must not hold {place}")
        if text and "{label}" in text.removeprefix("{label}"):
            raise ValueError("may hold {label} once, at its very beginning")
        return text


def _require_places(prompt: str, places: Sequence[str]) -> None:
    """Raise ValueError for a prompt that does not hold these, and no others, in their order."""
    rest = prompt
    for place in PROMPT_PLACES:
        if place not in places:
            if place in prompt:
                raise ValueError(f"prompt: must not hold {place}: there is nothing to put there")
            continue
        _, mark, rest = rest.partition(place)
        if not mark or prompt.count(place) > 1:
            raise ValueError(
                f"prompt: must hold {', '.join(places)} once each, in this order; {place} "
                + ("comes twice" if prompt.count(place) > 1 else "is not where it should be")
            )


class VerifierRole(RoleSpec):
    """How the process reward model that scores steps is asked, wherever it runs."""

    is_compiled: ClassVar[bool] = False
    in_flight_tokens: Count | None = None
    """Upper bound of prompt tokens that the orchestrator keeps in flight (see `tts tune`)."""
    in_flight_requests: Count | None = None
    """Upper bound of critiques that it keeps in flight (format critique, in place of tokens)."""
    format: FormatName = "rlhflow"
    """How questions and steps are presented to the verifier (docs/reference/verifiers.md)."""
    head: HeadKind | None = None
    """What the verifier judges with; unset: recognised from its config.json."""
    scores: Scores | None = None
    """What it scores: every step, or whole answers alone, so that searches over steps are refused;
    unset: what its head was trained for."""
    calibration: VerifierCalibration | None = None
    """The probabilities that its scores stand for, as measured (`tts score --write`); unset: scores
    count as they are."""
    step_tag: Annotated[str, Field(min_length=1)] | None = None
    """The token after which a step's score is read (format math-shepherd only; default "ки")."""
    template: Template | None = None
    """The dialogue of format custom."""
    prompt_file: FilePath | None = None
    """A file that holds `prompt`, relative to the deployment file."""
    prompt: Prompt | None = None
    """The question about a step that an instruct model is asked, with the places {question},
    {steps} and {step} (formats prompted, graded and critique)."""
    system_prompt: str | None = None
    """The text that the model reads before the question (format likelihood only)."""
    labels: Labels = Field(default=_OF_ITS_FORMAT)
    """The labels, one token each, from the best to the worst, or with weights from 1 to 0; the
    default is that of the format."""
    criteria: Annotated[tuple[str, ...], Field(min_length=1, max_length=20)] | None = None
    """What the prompt asks about, one after the other, at its place {criterion}; the score is the
    mean (formats prompted and graded)."""
    critique: CritiqueSpec = CritiqueSpec()
    """How critiques are written, and their verdicts read (format critique only)."""
    same_as: Literal["generator"] | None = None
    """The generator's own model judges: one engine has both roles."""
    reads_thinking: ReadsThinking = "none"
    """Whether it reads the generator's thinking as steps, or so many last tokens of each."""

    @property
    def facts(self) -> FormatFacts:
        """The facts about its format."""
        return FORMATS[self.format]

    @property
    def reads_logits(self) -> bool:
        """Whether its scores are made of logits, those behind a critique included."""
        return self.critique.reads_labels if self.facts.writes else True

    @property
    def in_flight(self) -> int:
        """The upper bound of what is in flight: critiques, or prompt tokens."""
        return (self.in_flight_requests if self.facts.writes else self.in_flight_tokens) or 0

    @property
    def reads_whole(self) -> bool:
        """Whether it reads the answer as one text, up to its last step, and not step by step."""
        return self.facts.whole or (self.template is not None and self.template.turn is None)

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_of_its_format(cls, labels: Any, info: ValidationInfo) -> Any:
        return own_labels(info.data.get("format")) if labels is None else labels

    @property
    def prompt_places(self) -> Sequence[str]:
        """What its prompt holds, in this order."""
        question, steps, step, criterion = PROMPT_PLACES
        if self.facts.writes and self.prompt and step not in self.prompt:
            return question, steps  # which holds the last step, too
        return (question, steps, step) + ((criterion,) if self.criteria else ())

    def with_prompt(self, prompt: str) -> Self:
        """A copy with the text of its prompt file; raises ValueError for what cannot be one."""
        update = {"prompt": prompt.strip(), "prompt_file": None}  # all there is to know then
        filled = self.model_copy(update=update)
        _require_places(filled.prompt or "", filled.prompt_places)
        return filled

    @field_validator("criteria")
    @classmethod
    def _criteria_differ(cls, criteria: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if criteria and len({each.strip() for each in criteria} - {""}) < len(criteria):
            raise ValueError("must be different texts, none of them blank")
        return criteria

    @model_validator(mode="after")
    def _has_what_its_format_has(self) -> Self:
        facts = self.facts
        if self.prompt is not None:
            _require_places(self.prompt, self.prompt_places)
        if facts.not_compiled and self.is_compiled:
            raise ValueError(facts.not_compiled)
        for field, words in FIELD_WORDS.items():
            value = getattr(self, field)
            is_stated = value != type(self).model_fields[field].default
            if field == "prompt" and self.prompt_file:
                is_stated = True
            if is_stated and not facts.has(field):
                having = ", ".join(name for name, each in FORMATS.items() if each.has(field))
                raise ValueError(
                    f"{words.stated.format(value)}, but format is {self.format}; only format "
                    f"{having} has {words.noun}"
                )
            if not is_stated and facts.needs == field:
                raise ValueError(f"format is {self.format}, so {words.required}")
        if self.labels and not facts.labels:
            raise ValueError(f"labels are given, but format {self.format} reads none; remove them")
        if facts.labels and not self.labels:
            raise ValueError(
                f"labels are empty, but format {self.format} reads them; remove labels"
            )
        return self

    @model_validator(mode="after")
    def _lets_a_score_through(self) -> Self:
        budget, other = self.facts.budget_fields
        limit, instead = getattr(self, budget), getattr(self, other)
        if limit is None or instead is not None:
            place = "" if instead is None else f", in place of {other}"
            raise ValueError(f"{budget} is required with format {self.format}{place}")
        field, least, what = "max_seq_len", self.max_seq_len, "one full request"
        if self.facts.writes:
            least = self.critique.samples
            field, what = "critique.samples", "the critiques of one score"
        if limit < least:
            raise ValueError(
                f"{budget} is {limit} but {field} is {least}; the budget must let {what} through"
            )
        return self


class VerifierSpec(VerifierRole, EngineSpec):
    """The process reward model that scores steps, compiled."""

    is_compiled: ClassVar[bool] = True

    @property
    def writes(self) -> bool:
        """See EngineSpec."""
        return self.facts.writes

    @property
    def judges(self) -> bool:
        """See EngineSpec."""
        return self.reads_logits


class SharedVerifier(VerifierRole):
    """The generator's own compiled model, asked as a verifier as well."""

    is_compiled: ClassVar[bool] = True
    tokenizer_field: ClassVar[str] = "checkpoint"

    checkpoint: FilePath
    """The generator's, which the section does not name."""

    @model_validator(mode="after")
    def _has_no_head(self) -> Self:
        if self.head not in (None, "labels"):
            raise ValueError(f"head is {self.head}, but the generator's engine has none; remove it")
        return self
