"""Checks of the engines on disk against the deployment."""

from __future__ import annotations

from collections.abc import Iterator

from tts.base import paths
from tts.base.errors import BuildError, CheckpointError, ConfigError
from tts.base.findings import Finding
from tts.build.builder import target_module
from tts.build.inputs import Inputs
from tts.build.manifest import changed_content, inspect_engine, read_manifest
from tts.build.tensorrt.commands import expected_engine
from tts.build.tensorrt.engine_files import engine_problems
from tts.serving.repository.model_configs import grammar_tokenizer_file

from .findings import no_file, no_folder, not_checked


def read_back(inputs: Inputs) -> Iterator[Finding]:
    """config.json of the built engines against the deployment."""
    for engine in inputs.with_shapes():
        role = engine.role
        folder = paths.engine_dir(inputs.deployment.name, role)
        if not (folder / "config.json").is_file():
            yield not_checked(
                "the engine is not built on this machine",
                str(folder),
                "the builder changes some settings with a warning only"
                if inputs.deployment.target == "tensorrt"
                else "its record says what is served",
                f"Run: tts build-engines {inputs.deployment.argument}",
            )
        elif inputs.deployment.target == "tensorrt":
            expected = expected_engine(engine.spec, engine.shape)
            why = "the server would be told one thing by the engine and another by config.pbtxt"
            fix = f"Build it again: tts build-engines {inputs.deployment.argument}"
            where = f"{folder}/config.json"
            try:
                for problem in engine_problems(folder, expected):
                    yield Finding(problem, where, why, fix)
            except BuildError as error:
                yield Finding(error.message.removesuffix("."), where, why, fix)


def current(inputs: Inputs) -> Iterator[Finding]:
    """Built engines against what a build would make now, by their manifests."""
    if not inputs.deployment.engines():
        return
    differing = {finding.where for finding in read_back(inputs)}
    target = target_module(inputs.deployment.target)
    for engine in inputs.with_shapes():
        folder = paths.engine_dir(inputs.deployment.name, engine.role)
        if differing & {str(folder), f"{folder}/config.json"}:
            continue  # `read_back` has reported it
        try:
            reasons = inspect_engine(folder, engine.folder, target.settings_for(engine)).reasons
        except (CheckpointError, ConfigError) as error:
            yield not_checked(
                f"whether the engine is of this checkpoint: {error.message.removesuffix('.')}",
                str(folder),
                "an engine of another checkpoint answers as well",
                error.hint or "Download the checkpoint.",
            )
            continue
        for reason in reasons:
            yield Finding(
                reason,
                str(folder),
                "what is served would not be what the deployment says",
                f"Run: tts build-engines {inputs.deployment.argument}",
            )


def contents(inputs: Inputs) -> Iterator[Finding]:
    """Every byte of the built engines, by the hashes in their manifests: it reads all of them."""
    for role in inputs.deployment.engines():
        folder = paths.engine_dir(inputs.deployment.name, role)
        if (manifest := read_manifest(folder)) is None:
            continue  # `read_back` or `current` has reported it
        if not manifest.engine_sha256:
            yield not_checked(
                "the engine was built before hashes of its files were kept",
                str(folder),
                "a damaged file may have the size that it should have",
                f"Run: tts build-engines {inputs.deployment.argument} --force",
            )
        try:
            changed = changed_content(folder, manifest)
        except OSError as error:
            yield Finding(
                f"cannot be read: {error}",
                str(folder),
                "a server that may not read it does not load it",
                "Give this user the right to read it, or check the disk.",
            )
            continue
        for name in changed:
            yield Finding(
                f"{name} is not the file that was built, by its hash",
                str(folder),
                "a damaged engine may load, and answer something else",
                f"Run: tts build-engines {inputs.deployment.argument} --force",
            )


def engine_files(inputs: Inputs) -> Iterator[Finding]:
    """The files of each built engine are files."""
    why = "the engine cannot be loaded"
    fix = f"Remove it, then run: tts build-engines {inputs.deployment.argument}"
    for role in inputs.deployment.engines():
        folder = paths.engine_dir(inputs.deployment.name, role)
        if what := no_folder(folder):
            yield Finding(what, str(folder), why, fix)
            continue
        manifest = read_manifest(folder)
        names = {"config.json", "manifest.json", *(manifest.engine_files if manifest else ())}
        for name in sorted(names):
            yield from no_file(folder / name, why, fix)


def tokenizer_file(inputs: Inputs) -> Iterator[Finding]:
    """The file from which TensorRT-LLM's backend reads the tokens' texts is beside the engine."""
    file = grammar_tokenizer_file(inputs.deployment)
    if file and (file.parent / "config.json").is_file() and not file.is_file():
        yield Finding(
            f"{file.name} is missing",
            str(file),
            "the generator's model names it, and does not load without it",
            f"Run: tts render {inputs.deployment.argument}",
        )
