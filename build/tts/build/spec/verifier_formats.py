"""The table of verifier formats: what each is, once, for everything that asks.

The deployment file, the build, the engines' graphs, the model repository and the checks read it. To
add a format, write the function that makes its dialogue in a module below `tts.build.verifiers`,
and add its facts here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

HeadKind = Literal["labels", "classification", "value"]
"""How a verifier judges: by labels of its language head, or by a head (verifier_heads.py)."""
Scores = Literal["steps", "answers"]
"""What a verifier scores: every step at its end, or whole answers alone."""
FormatField = Literal["step_tag", "template", "prompt", "system_prompt", "criteria", "critique"]
"""Fields of section `verifier` that only some formats have."""


@dataclass(frozen=True)
class FieldWords:
    """The words of errors about a field that only some formats have."""

    stated: str
    """The clause that it is stated, with its value."""
    noun: str
    """What only some formats have."""
    required: str = ""
    """What a format requires that needs the field."""


FIELD_WORDS: Mapping[FormatField, FieldWords] = {
    "step_tag": FieldWords("step_tag is {!r}", "a step tag", "step_tag is required"),
    "template": FieldWords(
        "template is given", "one", "template is required: head, answer and turn"
    ),
    "prompt": FieldWords(
        "a prompt is given",
        "one",
        "prompt_file is required: the text that asks whether a step is right "
        "(docs/reference/verifiers.md)",
    ),
    "criteria": FieldWords("criteria are given", "criteria"),
    "critique": FieldWords("critique is given", "critiques"),
    "system_prompt": FieldWords("system_prompt is given", "one", "system_prompt is required"),
}
_HEADS: tuple[HeadKind, ...] = ("classification", "value")
READ_AT_LABELS = "a language head, read at the labels"


@dataclass(frozen=True)
class FormatFacts:
    """The facts about one format."""

    meaning: str
    """One line for the documentation."""
    dialogue: str
    """The function that makes the dialogue from a tokenizer and a VerifierSpec: MODULE:FUNCTION in
    verifiers."""
    judges: tuple[HeadKind, ...] = ("labels",)
    """The heads that verifiers of this format may have."""
    whole: bool = False
    """Whether the answer is read as one text, up to its last step, and not step by step."""
    output: Literal["logits", "likelihood", "text"] = "logits"
    """What a score is made of: logits of labels or of a head, a step's likelihood, or a text."""
    judged_by: str = READ_AT_LABELS
    """How a verifier without a head of its own judges, in words."""
    needs: FormatField | None = None
    """The field that a deployment must give."""
    allows: tuple[FormatField, ...] = ()
    """The fields that a deployment may give."""
    labels: tuple[str, ...] | None = ("+", "-")
    """The labels unless the deployment names others, the best first; None: it reads none."""
    trained: bool = True
    """Whether the verifiers of this format were trained to judge, with these labels or a head."""
    published: str | None = None
    """A word in the name of the published verifiers of this format, or of their publisher."""
    not_compiled: str = ""
    """Why no engine that is compiled here can compute it, and what to do instead; empty: it can."""

    def has(self, field: FormatField) -> bool:
        """Whether a deployment may give this field."""
        return field == self.needs or field in self.allows

    @property
    def writes(self) -> bool:
        """Whether the verifier generates text, so that its engine is a whole language model."""
        return self.output == "text"

    @property
    def budget_fields(self) -> tuple[str, str]:
        """The field that bounds what is in flight, and the one that bounds it in other formats."""
        fields = "in_flight_tokens", "in_flight_requests"
        return fields[::-1] if self.writes else fields


FORMATS: Mapping[str, FormatFacts] = {
    "rlhflow": FormatFacts(
        "a chat: user turns are steps, assistant turns are labels",
        "running_text:rlhflow",
        published="rlhflow",
    ),
    "math-shepherd": FormatFacts(
        "plain text, a tag after each step",
        "running_text:math_shepherd",
        allows=("step_tag",),
        published="math-shepherd",
    ),
    "custom": FormatFacts(
        "the dialogue that `verifier.template` spells out",
        "running_text:custom",
        judges=("labels", *_HEADS),
        needs="template",
        trained=False,
    ),
    "qwen2.5-math-prm": FormatFacts(
        "a chat whose assistant turn is the steps, with a marker after each",
        "running_text:qwen_math_prm",
        judges=_HEADS,
        published="qwen2.5-math-prm",
    ),
    "skywork-o1-prm": FormatFacts(
        "question and steps as lines, each ended by one token",
        "lines:skywork_prm",
        judges=_HEADS,
        published="skywork-o1-open-prm",
    ),
    "chat": FormatFacts(
        "a chat of the question and the whole answer, by the chat template",
        "running_text:chat",
        judges=_HEADS,
        whole=True,
        published="skywork-reward",
    ),
    "prompted": FormatFacts(
        "an instruct model, asked with a prompt whether the last step is right",
        "untrained:prompted",
        judged_by="a prompt: a language head, read at the labels",
        needs="prompt",
        allows=("criteria",),
        labels=("Yes", "No"),
        trained=False,
    ),
    "graded": FormatFacts(
        "as prompted, answered with a grade",
        "untrained:prompted",
        judged_by="a prompt: a language head, read at the labels",
        needs="prompt",
        allows=("criteria",),
        labels=tuple("ABCDEFGHIJKLMNOPQRST"),
        trained=False,
    ),
    "critique": FormatFacts(
        "a language model that writes a critique of the last step, and a verdict",
        "critique:critic",
        output="text",
        judged_by="a critique",
        allows=("prompt", "critique"),
        labels=None,
        trained=False,
    ),
    "likelihood": FormatFacts(
        "how likely a language model finds the last step",
        "untrained:likelihood",
        output="likelihood",
        allows=("system_prompt",),
        labels=None,
        trained=False,
        not_compiled="format likelihood needs the log-probabilities of a prompt, which no engine "
        "that is compiled here gives: serve the model with vLLM or SGLang, and give verifier.url",
    ),
}
"""Facts by the name that `verifier.format` gives."""
