"""Section `verifier.critique`: how a verifier that writes is asked, and how its verdict is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, model_validator

from .critique_presets import PRESETS
from .generator import ThinkingSpec
from .section import Count, Section

if TYPE_CHECKING:
    PresetName = str
else:
    PresetName = Literal[tuple(PRESETS)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]
Mark = Annotated[float, Field(strict=True, ge=-1e9, le=1e9)]
Weight = Annotated[float, Field(strict=True, ge=0, le=1)]


class VerdictSpec(Section):
    """Where the verdict stands in a critique, by one of expression, json_field and after."""

    expression: Text | None = None
    """A regular expression in RE2's notation; its one group is the verdict, in its last match."""
    json_field: Text | None = None
    """A field of the last JSON object that has it."""
    after: Text | None = None
    """A text; the verdict is the word behind its last place."""
    probability: StrictBool = False
    """With `after`: read the probabilities of the labels there, which writes no word."""
    labels: dict[Text, Weight] | None = None
    """What each word is worth, from 0 to 1; unset: right, yes, correct, true and pass are 1, wrong,
    no, incorrect, false and fail are 0."""
    scale: tuple[Mark, Mark] = (0.0, 1.0)
    """What a number stands for the worst, and for the best score."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        ways = (self.expression, self.json_field, self.after)
        if sum(way is not None for way in ways) != 1:
            raise ValueError("give one of expression, json_field and after")
        if self.probability and (self.after is None or not self.labels):
            raise ValueError("probability needs after and labels")
        if self.labels is not None and len(set(self.labels.values())) < 2:
            raise ValueError("labels must be two or more, of different weights")
        words = [word.casefold() for word in self.labels or () if not self.probability]
        if len(set(words)) < len(words):
            raise ValueError("labels are words in any case, and two of them differ in case alone")
        if self.labels is not None and self.scale != (0.0, 1.0):
            raise ValueError("labels are words and a scale is for numbers; give one of them")
        if self.scale[0] == self.scale[1]:
            raise ValueError("scale: the worst and the best number must differ")
        return self


class CritiqueSpec(Section):
    """How a verifier writes its critique, and how its verdict is read."""

    preset: PresetName | None = None
    """Whose prompt and verdict; unset: judge, or those of `verifier.prompt` and `verdict`."""
    max_tokens: Count = 1024
    """The longest critique, its thinking included; the default is the preset's."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.6
    """The temperature of its sampling; the default is the preset's."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """The share of the likeliest tokens that are sampled; the default is the preset's."""
    samples: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    """How many critiques are written for a score, which is the mean of their verdicts."""
    verdict: VerdictSpec | None = None
    """Where the verdict stands; unset: where the preset has it."""
    thinking: ThinkingSpec = ThinkingSpec()
    """How the verifier thinks before it writes, if its chat template says so."""

    @property
    def reads_labels(self) -> bool:
        """Whether its verdict is read from the probabilities of labels, not from the text."""
        if self.verdict:
            return self.verdict.probability
        return bool(PRESETS[self.preset or "judge"].verdict.get("probability"))

    @model_validator(mode="before")
    @classmethod
    def _as_its_preset(cls, data: Any) -> Any:
        preset_name = (data.get("preset") or "judge") if isinstance(data, dict) else None
        if not isinstance(preset_name, str) or (preset := PRESETS.get(preset_name)) is None:
            return data
        sampling = ("max_tokens", "temperature", "top_p")
        return {name: getattr(preset, name) for name in sampling} | data

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(
                f"samples is {self.samples}, but temperature is 0, at which all are equal"
            )
        self.thinking.require_room("max_tokens", self.max_tokens, "a verdict")
        if self.thinking.steps != "whole":
            raise ValueError("thinking.steps cuts the generator's thinking; a critique is not cut")
        return self
