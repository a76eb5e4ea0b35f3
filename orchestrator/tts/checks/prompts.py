"""Checks of token sequences: prompts, the verifier's dialogue and labels, stop words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from tts.base.errors import CheckpointError
from tts.base.findings import Finding
from tts.build.build_plan import QUESTION, STEP, check_tokenizer
from tts.build.inputs import EngineInputs, Inputs
from tts.build.spec import PROMPT_PLACES, Role, VerifierRole
from tts.build.thinking import thinking_of, unknown_thinking
from tts.build.tokenizer import EOS_FILES, Tokenizer
from tts.build.verifiers.critique import Critic
from tts.prompting.chat import chat_prompt, generator_chat
from tts.prompting.step_ends import count_stop_words

from .findings import doubtful, not_checked, refused

_PLACE = re.compile(r"(?<![\w\\^{])\{[a-z_]+\}")
"""What looks like a place in a prompt, and not like LaTeX."""
MOST_STOP_WORDS = 50_000
PROBE = (
    "Let $f(x) = \\frac{1}{2}x$ <for all> x & y.\n\n  What is {{ f(4) }}? \u00e9\u4e2d" + " x" * 500
)
"""A question in which any change by a chat template shows: cut short, escaped, reflowed."""
APART = (
    ("1 + 1 = 2", "1 + 1 = 3"),
    ("12", "21"),
    ("a - b", "a + b"),
    ("The answer is 7.", "The answer is -7."),
    ("Let x be the sum.", "Let x be the product."),
)
"""Texts that no model of mathematics may take for each other."""
KEPT = ("x < y", "f(X) = 2*x^2", "$\\frac{1}{2}$", "\\boxed{[1, 2]}", "So n > 0.\n\nHence 3 & 4")
"""Texts that a generator reads and writes."""


def tokenizers(inputs: Inputs) -> Iterator[Finding]:
    """Each tokenizer is its model's; the verifier's makes its labels and its dialogue."""
    for role, model in inputs.roles.items():
        if not (model.folder / "tokenizer.json").is_file():
            yield not_checked(
                f"{model.folder} has no tokenizer.json",
                role,
                "stop words and the prompt's length are counted in its tokens"
                if role == "generator"
                else "labels and dialogue are made of its tokens",
                "Download the checkpoint, or at least its tokenizer files, to that folder.",
            )
            continue
        try:
            vocab_size = model.tokenizer.vocab_size
            with suppress(CheckpointError):  # the check of the checkpoints reports it
                vocab_size = model.shape.vocab_size
            check_tokenizer(model, vocab_size)
            _require_apart(model.tokenizer)
        except CheckpointError as error:
            why = "requests are made of its tokens, and scores read at the labels' ids"
            yield refused(error, inputs.deployment, role, why, "Download the checkpoint again.")


def round_trip(inputs: Inputs) -> Iterator[Finding]:
    """Texts come back from their token ids as they were."""
    for role, model in inputs.roles.items():
        if not (tokenizer := tokenizer_of(model)):
            continue
        with suppress(CheckpointError):  # `tokenizers` reports it
            if changed := list(_changed_texts(tokenizer)):
                text, back = changed[0]
                yield doubtful(
                    f"loses text: {text!r} comes back from its ids as {back!r}",
                    f"{role}.{model.role_spec.tokenizer_field}: {model.folder / 'tokenizer.json'}",
                    "the model reads and writes less than what is asked and answered",
                    "Take a checkpoint whose tokenizer keeps every character.",
                )


def prompt(inputs: Inputs) -> Iterator[Finding]:
    """The chat template carries system prompt and question, and leaves room for an answer."""
    spec = inputs.deployment.generator
    if not (tokenizer := tokenizer_of(inputs.roles["generator"])):
        return
    try:
        where = f"generator.{spec.tokenizer_field}"
        chat_prompt(tokenizer, chat := generator_chat(spec, PROBE))
        where = "generator.thinking"
        thinking_of(tokenizer, spec.thinking, chat)
        length = len(chat_prompt(tokenizer, generator_chat(spec, "")))
    except CheckpointError as error:
        fix = "Take a checkpoint whose chat template can."
        yield refused(error, inputs.deployment, where, "no prompt can be made", fix)
        return
    what = "system prompt and template" if spec.system_prompt else "the chat template"
    fix = "Raise generator.max_seq_len, or shorten generator.system_prompt."
    yield from _room("generator", length, what, spec.max_seq_len, fix)


def thinking(inputs: Inputs) -> Iterator[Finding]:
    """The marks of thinking are known of what seems to think: the generator, and a critic."""
    for role, model in inputs.roles.items():
        spec = model.role_spec
        section, thinking_spec = f"{role}.thinking", inputs.deployment.generator.thinking
        if isinstance(spec, VerifierRole):
            if not spec.facts.writes:
                continue
            section, thinking_spec = f"{role}.critique.thinking", spec.critique.thinking
        with suppress(CheckpointError):  # `prompt` reports a template that fails
            tokenizer = tokenizer_of(model)
            if tokenizer and (hints := unknown_thinking(tokenizer, thinking_spec)):
                yield doubtful(
                    f"has {', '.join(hints[:4])}, but none of the marks of thinking that are known",
                    f"{role}.{spec.tokenizer_field}: chat template",
                    "if this model thinks, its thinking is taken for what it answers",
                    f"State its marks in {section}: opens and closes; or {section}: "
                    "{enabled: false} if it does not think.",
                )


def end_tokens(inputs: Inputs) -> Iterator[Finding]:
    """The ids that end an answer are those that the tokenizer has for it, in every file."""
    for role, model in inputs.roles.items():
        if tokenizer := tokenizer_of(model):
            with suppress(CheckpointError):  # `tokenizers` reports it
                yield from _end_tokens(role, tokenizer)


def _end_tokens(role: Role, tokenizer: Tokenizer) -> Iterator[Finding]:
    why = (
        "an answer ends at these tokens only: it would run on to its length limit, or stop early"
        if role == "generator"
        else "its files are of different models, and so may be the labels' ids"
    )
    fix = "Take the file from the checkpoint's publisher again, or set eos_token_id to"
    eos_ids = tokenizer.special_ids("eos_token")
    for file in EOS_FILES:
        ids = tokenizer.eos_ids_in(file)
        where = f"{tokenizer.checkpoint / file}: eos_token_id"
        if ids and not set(eos_ids) <= set(ids):
            yield doubtful(
                f"is {' and '.join(map(str, ids))}, without {eos_ids[0]}, the tokenizer's "
                f"eos_token {tokenizer.special('eos_token')!r}",
                where,
                why,
                f"{fix} {eos_ids[0]}.",
            )
        for token in ids:
            if token < tokenizer.vocab_size and token not in tokenizer.added_ids:
                yield doubtful(
                    f"has {token}, which is the ordinary text {tokenizer.decode([token])!r}",
                    where,
                    why,
                    f"{fix} the ids of special tokens.",
                )


def dialogue(inputs: Inputs) -> Iterator[Finding]:
    """What surrounds question and step leaves room for them in the verifier, and for a critique."""
    if not (verifier := inputs.roles.get("verifier")) or not (length := empty_dialogue(verifier)):
        return
    spec, fix = verifier.role_spec, "Raise verifier.max_seq_len."
    yield from _room("verifier", length, "the dialogue", spec.max_seq_len, fix)
    assert isinstance(spec, VerifierRole)
    if unfilled := sorted({*_PLACE.findall(spec.prompt or "")} - {*PROMPT_PLACES}):
        yield doubtful(
            f"has {unfilled[0]}, for which nothing is put",
            "verifier.prompt",
            "the model reads it as it stands",
            f"The places are {', '.join(PROMPT_PLACES)}.",
        )
    longest, room = spec.critique.max_tokens, spec.max_seq_len - length - QUESTION - STEP
    if spec.facts.writes and longest > room:
        yield doubtful(
            f"is {longest}, but behind the dialogue, a question and a step {max(room, 0)} of "
            f"{spec.max_seq_len} tokens are left",
            "verifier.critique.max_tokens",
            "a critique that is cut short has no verdict",
            "Raise verifier.max_seq_len, or lower verifier.critique.max_tokens.",
        )


def stop_words(inputs: Inputs) -> Iterator[Finding]:
    """The step delimiter gives stop words, and not too many."""
    spec = inputs.deployment.generator
    if not (tokenizer := tokenizer_of(inputs.roles["generator"])):
        return
    where = "generator.step_delimiter"
    count = count_stop_words(tokenizer.token_texts, spec.step_delimiter)
    if not count:
        yield Finding(
            f"is {spec.step_delimiter!r}, which no tokens of {spec.tokenizer_folder} spell",
            where,
            "no step would ever end before its length limit",
            "Set generator.step_delimiter to a text that the generator can write.",
        )
        return
    if count > MOST_STOP_WORDS:
        yield Finding(
            f"is {spec.step_delimiter!r}, which tokens of {spec.tokenizer_folder} spell in "
            f"{count:,} ways",
            where,
            f"each is a stop word in every request; at most {MOST_STOP_WORDS:,} are sensible",
            "Set generator.step_delimiter to a shorter text.",
        )


def _room(role: Role, length: int, what: str, limit: int, fix: str) -> Iterator[Finding]:
    where = f"{role}.max_seq_len"
    if length >= limit:
        why = "no question fits, so every problem is refused"
        yield Finding(f"is {limit}, but {length} tokens go to {what} alone", where, why, fix)
    elif length + QUESTION + STEP > limit:
        yield doubtful(
            f"is {limit}; {length} tokens go to {what}, and {limit - length} are left for question "
            "and steps",
            where,
            f"a problem of MATH takes about {QUESTION} tokens, and each step {STEP}",
            fix,
        )


def tokenizer_of(inputs: EngineInputs) -> Tokenizer | None:
    """The tokenizer, or None; then `tokenizers` reports why."""
    if (inputs.folder / "tokenizer.json").is_file():
        with suppress(CheckpointError):
            return inputs.tokenizer
    return None


def empty_dialogue(verifier: EngineInputs) -> int | None:
    """Tokens of a dialogue without any text, or None; then `tokenizers` reports why."""
    if tokenizer_of(verifier):
        with suppress(CheckpointError):
            match verifier.dialogue:
                case Critic() as critic:
                    return len(critic.prompt("", ()))
                case None:
                    return None
                case dialogue:
                    return len(dialogue.first("", ""))
    return None


def _require_apart(tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer to which different texts are the same, or nothing."""
    for one, other in APART:
        ids = tokenizer.encode(one)
        if ids and ids != tokenizer.encode(other):
            continue
        what = (
            f"gives {one!r} and {other!r} the same ids, {ids}" if ids else f"has no ids for {one!r}"
        )
        raise CheckpointError(
            f"{tokenizer.checkpoint / 'tokenizer.json'} {what}.",
            hint="The file is damaged, or of a model of another kind: take it from the "
            "checkpoint's publisher again.",
        )


def _changed_texts(tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    """Texts that encoding and decoding change, but for white space at ends, with the new form."""
    for text in KEPT:
        back = tokenizer.decode(tokenizer.encode(text))
        if back.strip() != text.strip():
            yield text, back
