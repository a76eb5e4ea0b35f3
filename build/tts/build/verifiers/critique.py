"""How a path is put to a verifier that writes, and what its critique says.

    prompt ─► thinking, critique ─┬─► a verdict in its text
                                  └─► up to a place, where the probabilities of labels are read

A preset (`PRESETS`) and a prompt of the deployment's are the same: a prompt, and where the verdict
stands. The prompt goes through the checkpoint's chat template. Where the template has the model
think, the prompt ends inside its thinking, and a verdict counts only behind it.

A verdict in the text is the group of a regular expression's last match, a field of the last JSON
object that has it, or the word behind a text's last place. It is a label, or a number on a scale. A
critique may hold anything: what is no verdict is None. Only its end is read, in bounded time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tts.base.errors import CheckpointError, ConfigError
from tts.base.extras import how_to_install

from ..spec import VerifierRole
from ..spec.critique import CritiqueSpec, VerdictSpec
from ..spec.critique_presets import PRESETS, Preset
from ..spec.generator import ThinkingSpec
from ..thinking import Thinking, thinking_of
from ..tokenizer import Ids, Tokenizer, end_of
from .dialogue import ANY_WORD, label_ids, require_prompt

_PLACE = re.compile(r"\{(question|steps|step|number)\}")
_NUMBERED = re.compile(r"\A(?:## )?Step \d+:\s*")
"""The number that a generator gives its step."""
TAIL = 20_000
"""Characters at the end of a critique in which its verdict is looked for."""
LABELS: Mapping[str, float] = {
    **dict.fromkeys(("right", "yes", "correct", "true", "pass"), 1.0),
    **dict.fromkeys(("wrong", "no", "incorrect", "false", "fail"), 0.0),
}
"""What words are worth unless the deployment names others."""
_OBJECT = re.compile(r'\{\s*"')
_IN_VAIN = 10 * TAIL
"""Characters that are read of what begins like a JSON object and is none, all together."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII)
_WORD = re.compile(r"\W{0,10}?([+-]?\.?\w[\w.]{0,99})")
"""The next word, behind the marks around it: `: **right**.`"""
Reader = Callable[[str], float | None]


@dataclass(frozen=True)
class Asked:
    """Where the probabilities of labels are read: behind a text of the critique."""

    after: str
    """The text; writing can end with it."""
    then: str
    """What is written behind it, up to the label."""
    otherwise: str
    """What is written behind a critique without it."""
    labels: Mapping[int, float]
    """The labels' token ids with their weights: the score is the weights' mean under the softmax
    over their logits."""


@dataclass(frozen=True)
class Critic:
    """How a path is put to a verifier that writes, and what its critique says."""

    tokenizer: Tokenizer
    form: Preset
    """The words of the prompt."""
    read: Reader
    """What reads a verdict in a text."""
    thinking: Thinking | None
    """How it thinks before it writes; None if it does not."""
    asks: Asked | None
    """Where the probabilities of labels are read; None for a verdict in the text."""

    def prompt(self, question: str, steps: Sequence[str]) -> Ids:
        """Ids int32 [length] that end where the critique begins, which is about the last step."""
        return np.asarray(self.tokenizer.encode(self.text(question, steps)), dtype=np.int32)

    def text(self, question: str, steps: Sequence[str]) -> str:
        """The text of a prompt."""
        form, texts, inert = self.form, list[str](), self.tokenizer.inert
        question = inert(question)
        for at, step in enumerate(map(inert, steps or ("",)), 1):
            bare = _NUMBERED.sub("", step) if "{number}" in form.step_form else step
            texts.append(_filled(form.step_form, step=bare, number=str(at)))
        messages = [{"role": "system", "content": form.system}] if form.system else []
        if form.later:
            first, *later = texts
            turns = [("user", _filled(form.user, question=question, step=first))]
            for step in later:
                turns += ("assistant", form.reply), ("user", _filled(form.later, step=step))
        else:
            earlier = texts[:-1] if "{step}" in form.user else texts
            before = form.between.join(earlier) or form.no_steps
            content = _filled(form.user, question=question, steps=before, step=texts[-1])
            turns = [("user", content)]
        messages += [{"role": role, "content": content} for role, content in turns]
        text = self.tokenizer.chat(messages, generation_prompt=form.answers)
        if not form.answers:  # the chat goes on in its last turn
            eos, open_text = self.tokenizer.special("eos_token"), text.removesuffix("\n")
            text = open_text.removesuffix(eos) if eos and open_text.endswith(eos) else text
        elif self.thinking:
            text = self.thinking.prompt(text)
        return text + _filled(form.opening, number=str(len(texts)))

    def verdict(self, text: str) -> float | None:
        """The score of a critique's text, from 0 to 1; None: it has no verdict.

        `text` is as `Tokenizer.spelled` writes it: behind its thinking alone a verdict counts.
        """
        if self.thinking:
            marks = map(re.escape, self.thinking.marks.closings)
            _, *behind = re.split("|".join(marks), text, maxsplit=1)
            if not behind:
                return None
            (text,) = behind
        return self.read(text)

    @cached_property
    def stop_words(self) -> tuple[tuple[int, ...], ...]:
        """What ends a critique where labels are read behind it; `ask` finds other spellings."""
        return (tuple(self.tokenizer.encode(self.asks.after)),) if self.asks else ()

    def ask(self, critique: Sequence[int]) -> list[int]:
        """A critique's ids up to where one of the labels of `asks` is next.

        They end with the first place of `after` behind the thinking, or with one put at the end.
        """
        assert self.asks
        spelled, ids = self.tokenizer.spelled, list(critique)
        border = self.thinking.end(ids) if self.thinking else 0
        if border is None and self.thinking:
            ids += self._written(f"\n{self.thinking.marks.closes}")
            border = len(ids)
        thought, ids = ids[:border], ids[border:]
        cut = end_of(self.asks.after, ids, spelled)
        if cut is None:
            return [*thought, *ids, *self._written(self.asks.otherwise + self.asks.then)]
        before, _, beyond = spelled(ids[:cut]).partition(self.asks.after)
        text = before + self.asks.after + self.asks.then
        prefix = ids[: cut - bool(beyond)]  # a token may hold more than the end of `after`
        if not text.startswith(spelled(prefix)):
            prefix = []
        return [*thought, *prefix, *self._written(text.removeprefix(spelled(prefix)))]

    def _written(self, text: str) -> list[int]:
        return self.tokenizer.encode_after(ANY_WORD, text) if text else []


def critic(tokenizer: Tokenizer, spec: VerifierRole) -> Critic:
    """How a verifier that writes is asked; raises ConfigError, CheckpointError if it cannot be."""
    settings, form = spec.critique, _form(spec)
    verdict = settings.verdict or VerdictSpec.model_validate(dict(form.verdict))
    thinking = None
    if form.answers:
        section = "verifier.critique.thinking"
        system = [{"role": "system", "content": form.system}] if form.system else []
        chat = [*system, {"role": "user", "content": form.user}]
        thinking = thinking_of(tokenizer, settings.thinking, chat, section=section)
    elif settings.thinking != ThinkingSpec():
        raise ConfigError(
            f"verifier.critique.thinking is given, but preset {settings.preset} writes its "
            "critique at once.",
            hint="Remove it; verifier.critique.max_tokens limits the critique.",
        )
    own = settings.verdict is None
    asks = _asked(tokenizer, verdict, form if own else None) if verdict.probability else None
    if asks and own and form.then:  # where the label is written, if not read
        verdict = verdict.model_copy(update={"after": form.then.strip()})
    verifier = Critic(tokenizer, form, reader(verdict), thinking, asks)
    mark = "\ue000"
    if mark not in verifier.text(mark, ("",)):
        raise CheckpointError(
            f"The chat template of {tokenizer.checkpoint} does not carry a message, so it cannot "
            "be used for verifier format critique.",
            hint="Set verifier.checkpoint to an instruct model: it answers questions in a chat.",
        )
    return verifier


def _form(spec: VerifierRole) -> Preset:
    settings: CritiqueSpec = spec.critique
    if spec.prompt is None and spec.prompt_file is None:
        return PRESETS[settings.preset or "judge"]
    prompt = require_prompt(spec)
    if settings.preset or not settings.verdict:
        raise ConfigError(
            f"verifier.prompt is given, and so is verifier.critique.preset {settings.preset}."
            if settings.preset
            else "verifier.prompt is given, without verifier.critique.verdict.",
            hint="A preset is a prompt with its verdict: give either a preset, or your own prompt "
            "and where its verdict stands.",
        )
    judge = PRESETS["judge"]
    return Preset("", prompt, {}, judge.max_tokens, judge.temperature, judge.top_p, between="\n\n")


def _asked(tokenizer: Tokenizer, verdict: VerdictSpec, form: Preset | None) -> Asked:
    after, then, labels = verdict.after or "", form.then if form else "", verdict.labels or {}
    tokens = label_ids(tokenizer, labels, "verifier.critique.verdict.labels")
    before = ANY_WORD + after + then
    for label in labels:
        if tokenizer.encode(before + label) != tokenizer.encode(before) + tokenizer.encode(label):
            raise CheckpointError(
                f"verifier.critique.verdict: label {label!r} shares a token with the text in front "
                f"of it, {(after + then)[-40:]!r}, in the tokenizer of {tokenizer.checkpoint}.",
                hint='A label has the space in front of it, such as " Yes"; or leave probability '
                "out, and the written word is read.",
            )
    otherwise = form.otherwise if form and form.otherwise else f"\n{after}"
    return Asked(after, then, otherwise, dict(zip(tokens, labels.values(), strict=True)))


def _filled(template: str, **values: str) -> str:
    """A template with its places filled, in one pass: what fills them may look like a place."""
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), template)


def reader(spec: VerdictSpec) -> Reader:
    """What reads a critique's verdict: a score or None. Raises ConfigError for an expression."""

    def read(text: str) -> float | None:
        tail = text[-TAIL:].encode(errors="replace").decode()
        verdict = find(tail)
        return None if verdict is None else _score(verdict, spec)

    if spec.expression is not None:
        find = _by_expression(spec.expression)
    elif spec.json_field is not None:
        find = _by_field(spec.json_field)
    else:
        find = _by_place(spec.after or "", spec)
    return read


def _score(verdict: Any, spec: VerdictSpec) -> float | None:
    if isinstance(verdict, bool):
        return float(verdict)
    number = verdict if isinstance(verdict, int | float) else None
    if isinstance(verdict, str):
        word = verdict.strip().strip(".").casefold()
        labels = spec.labels or LABELS
        for label, weight in labels.items():
            if label.strip().casefold() == word:
                return weight
        number = float(word) if _NUMBER.fullmatch(word) else None
    worst, best = spec.scale
    if number is None or spec.labels or not min(worst, best) <= number <= max(worst, best):
        return None
    return (number - worst) / (best - worst)


def _by_expression(expression: str) -> Callable[[str], str | None]:
    name = "verifier.critique.verdict.expression"
    try:
        import re2
    except ImportError as error:
        raise ConfigError(
            f"{name} needs RE2, which is not installed.",
            hint=f"Install it: {how_to_install('filters')}",
        ) from error
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise ConfigError(
            f"{name}: RE2 does not read {expression!r:.200}: {reason}.",
            hint="Look-around and back references are not in its notation.",
        ) from None
    if compiled.groups != 1:
        raise ConfigError(
            f"{name} has {compiled.groups} groups; it must have one, which is the verdict.",
            hint="Write (?:...) around what only belongs together.",
        )

    def find(text: str) -> str | None:
        last = None
        for match in compiled.finditer(text):
            last = match.group(1)
        return last

    return find


def _by_field(name: str) -> Callable[[str], Any]:
    def find(text: str) -> Any:
        values: list[Any] = []

        def note(value: dict[str, Any]) -> None:
            if name in value:
                values.append(value[name])

        decoder = json.JSONDecoder(
            object_hook=note, parse_int=float, parse_constant=lambda constant: None
        )
        end = in_vain = 0
        while in_vain < _IN_VAIN and (begins := _OBJECT.search(text, end)):
            try:
                _, end = decoder.raw_decode(text, begins.start())
            except json.JSONDecodeError as error:
                in_vain += 100 + error.pos - begins.start()
                end = begins.start() + 1
            except RecursionError:
                in_vain += TAIL
                end = begins.start() + 1
        return values[-1] if values else None

    return find


def _by_place(after: str, spec: VerdictSpec) -> Callable[[str], str | None]:
    place = after.casefold()

    def find(text: str) -> str | None:
        text = text.casefold()
        at = text.rfind(place)
        while at >= 0:
            match = _WORD.match(text, at + len(place))
            if match and _score(match.group(1), spec) is not None:
                return match.group(1)
            at = text.rfind(place, 0, at)
        return None

    return find
