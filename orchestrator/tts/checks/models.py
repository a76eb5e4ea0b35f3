"""Checks of both checkpoints, and that the two models belong together.

The checkpoints are there, whole, and long enough for max_seq_len; each model is what its section
says, and the verifier's format is its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tts.base.errors import CheckpointError, ConfigError
from tts.base.findings import Finding
from tts.base.input_files import is_file
from tts.build.build_plan import check_length
from tts.build.checkpoint import CHECKPOINT_FILES
from tts.build.checkpoint_files import how_to_get, refuse_gguf
from tts.build.inputs import Inputs
from tts.build.model_config import known_model
from tts.build.sandbox import Sandbox
from tts.build.spec import FORMATS, TextVerifier, VerifierCommand, VerifierFunction, VerifierRole
from tts.build.verifiers.dialogue import label_ids
from tts.build.verifiers.running_text import DEFAULT_STEP_TAG
from tts.endpoints.functions import require_defined

from .findings import doubtful, no_file, no_folder, not_checked, refused
from .prompts import tokenizer_of

_NAMES = (*CHECKPOINT_FILES, "chat_template.jinja")
_WEIGHTS = {".safetensors", ".bin"}


def checkpoints(inputs: Inputs) -> Iterator[Finding]:
    """Whether each checkpoint is there, whole and of a kind that can be built."""
    why = "the engine is made from it"
    for role, engine in inputs.engines.items():
        spec, where = engine.spec, f"{role}.checkpoint"
        if not engine.is_here:
            published = engine.is_published
            yield not_checked(
                f"{spec.checkpoint} has no config.json"
                + ("; its shape is the published one" if published else ""),
                where,
                "the engine is made from its weights"
                if published
                else "nothing of this engine can be known without it",
                how_to_get(spec.checkpoint),
            )
            continue
        try:
            _ = engine.shape
            if not any(file.suffix in _WEIGHTS for file in spec.checkpoint.iterdir()):
                yield not_checked(
                    f"{spec.checkpoint} has no weights", where, why, "Download the rest of it."
                )
            else:
                engine.require_weights()
        except CheckpointError as error:
            yield refused(
                error, inputs.deployment, where, why, "Download or save the checkpoint again."
            )


def lengths(inputs: Inputs) -> Iterator[Finding]:
    """max_seq_len within the model's positions."""
    why = "beyond its last position a model was never trained; its answers there are noise"
    for engine in inputs.with_shapes():
        try:
            check_length(engine)
        except ConfigError as error:
            yield refused(error, inputs.deployment, f"{engine.role}.max_seq_len", why)


def checkpoint_files(inputs: Inputs) -> Iterator[Finding]:
    """Each checkpoint is a folder, and its files are files."""
    for role, spec in inputs.deployment.engines().items():
        folder = spec.checkpoint
        why = "it would be taken for missing"
        fix = "Download or save the checkpoint again."
        try:
            refuse_gguf(folder)
        except CheckpointError as error:
            yield refused(error, inputs.deployment, f"{role}.checkpoint", why)
            continue
        if what := no_folder(folder):
            yield Finding(
                f"{folder} {what}",
                f"{role}.checkpoint",
                "a checkpoint is a folder of files",
                f"Set {role}.checkpoint to the folder that holds its config.json.",
            )
            continue
        for file in (*(folder / name for name in _NAMES), *folder.glob("*.safetensors")):
            yield from no_file(file, why, fix)


# words in the names of folders by which either is published
_VERIFIER = re.compile(r"(?<![a-z])(prm|orm|rm|reward|verifier|shepherd)(?![a-z])", re.IGNORECASE)
_GENERATOR = re.compile(r"(?<![a-z])(generator|instruct|chat)(?![a-z])", re.IGNORECASE)
_OPPOSITES = (
    ("+", "-"),
    ("yes", "no"),
    ("true", "false"),
    ("correct", "incorrect"),
    ("right", "wrong"),
    ("good", "bad"),
    ("1", "0"),
)
"""Words for right and wrong, in this order."""


def exchanged(inputs: Inputs) -> Iterator[Finding]:
    """Warn where names tell that generator and verifier are exchanged: nothing else could tell."""
    if len(inputs.deployment.engines()) < 2:
        return  # the folder of a tokenizer is not named for what a server runs
    generator, verifier = (spec.tokenizer_folder for spec in inputs.deployment.roles().values())
    fix = "Exchange generator.checkpoint and verifier.checkpoint, if they are the other way round."
    if is_named_verifier(generator):
        yield doubtful(
            f"{generator} is a verifier by its name",
            "generator.checkpoint",
            "a verifier writes labels, not steps",
            fix,
        )
    elif is_named_generator(verifier) and inputs.deployment.verifier_model.facts.trained:
        yield doubtful(
            f"{verifier} is a generator by its name",
            "verifier.checkpoint",
            "a model that was not trained to judge gives its labels chance probabilities",
            f"{fix} An instruct model judges with verifier.format prompted.",
        )


def function(inputs: Inputs) -> Iterator[Finding]:
    """The file of a function that scores is there and defines it; nothing of it is executed."""
    spec = inputs.deployment.verifier
    if not isinstance(spec, VerifierFunction):
        return
    file, _, name = spec.function.rpartition(":")
    why = "every search would end with this error"
    if not is_file(Path(file)):
        yield Finding(
            f"is {spec.function}, and there is no such file",
            "verifier.function",
            why,
            "Give FILE.py:NAME; a relative path starts at the deployment file.",
        )
        return
    try:
        require_defined(Path(file), name)
    except ConfigError as error:
        yield refused(error, inputs.deployment, "verifier.function", why, "Correct the file.")


def command(inputs: Inputs) -> Iterator[Finding]:
    """A command that scores can be run, and in a sandbox; nothing of it is executed."""
    deployment = inputs.deployment
    spec = deployment.verifier
    if not isinstance(spec, VerifierCommand):
        return
    sandbox = Sandbox(deployment.execution, spec.files)
    try:
        sandbox.require(spec.command)
    except ConfigError as error:
        yield Finding(
            f"cannot be run: {error.message}",
            "verifier.command",
            "every search would end with this error",
            error.hint or "",
        )
    if deployment.execution.sandbox != "bubblewrap":
        yield doubtful(
            f"is {deployment.execution.sandbox}",
            "execution.sandbox",
            "what the model writes may read and change your files, and use the network",
            "Remove execution.sandbox, and install bubblewrap.",
        )


def verifier_length(inputs: Inputs) -> Iterator[Finding]:
    """The verifier can read whatever the generator can write."""
    if isinstance(inputs.deployment.verifier, TextVerifier):
        return
    longest = inputs.deployment.generator.max_seq_len
    limit = inputs.deployment.verifier.max_seq_len
    if inputs.deployment.verifier.reads_thinking == "none":
        longest -= inputs.deployment.generator.thinking.budget_tokens or 0
    with suppress(CheckpointError):  # more than its positions is reported by `lengths`
        longest = min(longest, inputs.roles["generator"].shape.max_position_embeddings)
    if limit < longest:
        yield doubtful(
            f"is {limit}, but the generator writes sequences of up to {longest} tokens",
            "verifier.max_seq_len",
            "the last steps of long solutions are not scored, and their beams end there",
            f"Set verifier.max_seq_len to at least {longest}, or lower generator.max_seq_len.",
        )


def labels(inputs: Inputs) -> Iterator[Finding]:
    """Labels, step tag and format as the verifier was trained with them."""
    spec = inputs.deployment.verifier
    if isinstance(spec, TextVerifier):
        return
    with suppress(CheckpointError):  # the check of the tokenizers reports labels that are no tokens
        if tokenizer := tokenizer_of(inputs.roles["verifier"]):
            label_ids(tokenizer, spec.labels)
        yield from _labels(spec)
    yield from _step_tag(spec)
    trained = trained_format(spec.tokenizer_folder)
    if trained and spec.format != trained and spec.template is None:  # which spells out any other
        yield doubtful(
            f"is {spec.format}, but {spec.tokenizer_folder.name} was trained with {trained}",
            "verifier.format",
            "a dialogue that it was not trained on gives scores that mean nothing",
            f"Set verifier.format to {trained}.",
        )


def _labels(spec: VerifierRole) -> Iterator[Finding]:
    if not spec.labels:
        return
    positive, *_, negative = spec.labels
    if (negative.strip().lower(), positive.strip().lower()) in _OPPOSITES:
        yield doubtful(
            f"has {positive!r} as the positive label and {negative!r} as the negative one",
            "verifier.labels",
            "every score would be turned round, and the worst beams kept",
            f"Set verifier.labels to [{negative!r}, {positive!r}].",
        )
    elif spec.facts.trained and spec.facts.labels not in (None, tuple(spec.labels)):
        yield doubtful(
            f"are {positive!r} and {negative!r}, but verifiers of format {spec.format} are trained "
            f"with {' and '.join(map(repr, spec.facts.labels))}",
            "verifier.labels",
            "the logits of other tokens are no judgement, however the scores look",
            "Leave verifier.labels out, or describe the dialogue with verifier.format custom.",
        )


def _step_tag(spec: VerifierRole) -> Iterator[Finding]:
    tag = spec.step_tag or DEFAULT_STEP_TAG
    if spec.facts.has("step_tag") and tag.strip() in {label.strip() for label in spec.labels}:
        yield doubtful(
            f"is {tag!r}, which is one of the labels, too",
            "verifier.step_tag",
            "every step would end with a judgement already given",
            f"Leave verifier.step_tag out: verifiers of this format know {DEFAULT_STEP_TAG!r}.",
        )


def is_named_verifier(checkpoint: Path) -> bool:
    """Whether a model is published as a verifier, or has the name of one."""
    if model := known_model(checkpoint):
        return model.label_token_ids is not None
    return bool(_VERIFIER.search(checkpoint.name))


def is_named_generator(checkpoint: Path) -> bool:
    """Whether a model is published as a generator, or has the name of one."""
    if model := known_model(checkpoint):
        return model.label_token_ids is None
    name = checkpoint.name
    return bool(_GENERATOR.search(name)) and not _VERIFIER.search(name)


def trained_format(checkpoint: Path) -> str | None:
    """The format that a published verifier was trained with, by the name of its publisher."""
    model = known_model(checkpoint)
    name = f"{model.source if model else ''} {checkpoint.name}".lower()
    published = ((fmt, facts.published) for fmt, facts in FORMATS.items() if facts.published)
    return next((fmt for fmt, word in published if word in name), None)
