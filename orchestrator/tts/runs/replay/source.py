"""The source of a replay: a recorded run's folder, or a trace file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from tts.build.errors import RunError
from tts.build.input_files import Unreadable, is_file, require_path
from tts.build.user_paths import is_folder, is_there
from tts.problem import Problem
from tts.prompting import Models

from ..config import ReplaySource, RunConfig, read_run_config
from ..folder import EVENTS, GROUP
from ..summary import read_summary
from .recording import read_recording
from .script import Script
from .trace_script import TraceScript, read_chains


@dataclass(frozen=True)
class Source:
    """A run folder with its run.json, or a trace file without one. The path is absolute."""

    path: Path
    recorded: RunConfig | None

    @property
    def text(self) -> Literal["recorded", "made up"]:
        """Whether the steps' text is an engine's, so that there are answers to grade."""
        if self.recorded is None:
            return "made up"
        replay = self.recorded.replay
        return replay.text if replay else "recorded"

    @cached_property
    def description(self) -> ReplaySource:
        """What run.json keeps of it."""
        file = self.path if self.recorded is None else self.path / EVENTS
        try:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
        except OSError as error:
            raise RunError(f"{file} cannot be read: {error}") from error
        tree_digest = read_summary(self.path).tree_digest if self.recorded else ""
        return ReplaySource(
            source=str(self.path), digest=digest, text=self.text, tree_digest=tree_digest
        )

    def problems(self, loaded: Sequence[Problem]) -> list[Problem]:
        """The problems as they are solved: made-up text has no answers, so no references."""
        made_up = self.text == "made up"
        return [replace(problem, answer=None) if made_up else problem for problem in loaded]

    def limited(self, models: Models) -> Models:
        """`models` with the recorded run's context, which decides where chains are cut."""
        spec = models.deployment.generator
        context = (self.recorded and self.recorded.context) or spec.max_seq_len
        if context > spec.max_seq_len:
            raise RunError(
                f"The run in {self.path} had a context of {context} tokens; generator.max_seq_len "
                f"of deployment {models.deployment.name} is {spec.max_seq_len}.",
                hint="Raise it and build the engine again.",
            )
        return models.with_context(context)

    def script(self, models: Models, problems: Sequence[Problem]) -> Script:
        """The answers for the engines; raises a TtsError naming what does not fit."""
        if self.recorded is None:
            return TraceScript(models, read_chains(self.path))
        return read_recording(self.path, self.recorded, models, problems)


@dataclass(frozen=True)
class Replay:
    """A script, and what run.json keeps of where it came from."""

    script: Script
    description: ReplaySource


def open_source(path: Path) -> Source:
    """The source at `path`; raises RunError if it cannot be replayed."""
    try:
        require_path(str(path))
    except Unreadable as error:
        raise RunError(f"{str(path)!r:.100} cannot be replayed: {error}.") from error
    path = path.expanduser().resolve()
    if is_file(path):
        return Source(path, None)
    if not is_folder(path):
        raise RunError(
            f"There is nothing to replay at {path}.",
            hint="Name the folder of a finished run, or a file of traces "
            "(docs/explanation/simulation.md#replay).",
        )
    if is_there(path / GROUP):
        raise RunError(f"{path} holds several runs.", hint="Name the folder of one of them.")
    config = read_run_config(path)
    read_summary(path)  # refuses one that has not finished
    return Source(path, config)
