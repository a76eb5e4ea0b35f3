"""Verifiers that read text: a Python function, or a program; section `execution` of programs."""

from __future__ import annotations

import hashlib
import re
import shlex
from abc import abstractmethod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from tts.base.input_files import is_file, require_path

from .calibration import VerifierCalibration
from .section import FilePath, Parallel, Section
from .verifier_formats import Scores

SandboxName = Literal["bubblewrap", "none-i-trust-all-generated-code"]
_FUNCTION = re.compile(r".+\.py:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class ExecutionSpec(Section):
    """How programs run that execute what a model wrote: commands that score, and the tests of code
    problems.
    """

    sandbox: SandboxName = "bubblewrap"
    """What keeps them from this machine's files and from the network. Without it they have your
    rights, and only the limits below (docs/explanation/security.md)."""
    cpu_s: Annotated[int, Field(strict=True, ge=1, le=10**6)] = 10
    """Processor seconds of each process."""
    wall_s: Annotated[float, Field(gt=0, le=1e6)] = 60.0
    """Seconds by the clock, against what hangs: a busy machine must not decide a score."""
    memory_mb: Annotated[int, Field(strict=True, ge=16, le=10**7)] = 1024
    """MiB of address space of each process, and of memory of all of them with their files."""
    processes: Annotated[int, Field(strict=True, ge=1, le=10**5)] = 32
    """Processes at a time; in the sandbox twice as many with their threads."""
    files_mb: Annotated[int, Field(strict=True, ge=1, le=10**6)] = 64
    """MiB of each file, and in the sandbox of all in `/tmp`, and of all in `/dev/shm`."""
    at_a_time: Parallel | None = None
    """Programs that run at a time; unset: one for each core."""
    reads: tuple[FilePath, ...] = ()
    """Files and folders that they may read besides the system's, this Python and the files that
    the command names. As root runs them as a user without rights, others must be able to read
    them."""

    def below(self, folder: Path) -> ExecutionSpec:
        """A copy with absolute paths; relative ones start at `folder`."""
        reads = tuple((folder / path.expanduser()).resolve() for path in self.reads)
        return self.model_copy(update={"reads": reads})


class TextVerifier(Section):
    """A verifier that reads text: no model, so that nothing is built or served for it."""

    # as VerifierRole has them: nothing but its own speed limits it
    in_flight: ClassVar[int] = 1 << 20
    reads_thinking: ClassVar[Literal["none"]] = "none"
    calibration: VerifierCalibration | None = None
    """The probabilities that its scores stand for, as measured; unset: scores count as they are."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What an error calls it."""


class VerifierCommand(TextVerifier):
    """A program that scores a candidate, in a sandbox: no model, and no engine.

    It gets JSON on its standard input and writes a number within [0, 1] to its standard output
    (docs/reference/verifiers.md). A candidate on which it fails scores 0.
    """

    kind: Literal["command"] = "command"
    """Says the same as `command`; may be left out."""
    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    """The program and its arguments, without a shell; `python` is the one that runs `tts`. Files
    are relative to the deployment file."""
    scores: Scores = "answers"
    """What it scores: whole answers alone, as tests do, or a chain after each step."""

    @field_validator("command")
    @classmethod
    def _can_be_run(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        for word in command:
            require_path(word)
        return command

    def below(self, folder: Path) -> VerifierCommand:
        """A copy with the absolute paths of files; relative ones start at `folder`."""
        first, *others = self.command
        if "/" in first:  # a link stays: it is how a Python finds its virtual environment
            program = folder / Path(first).expanduser()
            first = str(program.parent.resolve() / program.name)
        command = (first, *(_in(folder, word) for word in others))
        return self.model_copy(update={"command": command})

    @property
    def title(self) -> str:
        """The command line."""
        return shlex.join(self.command)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the command names."""
        return tuple(path for word in self.command if "/" in word and is_file(path := Path(word)))

    @property
    def record(self) -> dict[str, Any]:
        """What run.json keeps of it: words without folders, and the hashes of files."""
        hashes = []
        for path in self.files:
            with path.open("rb") as file:
                hashes.append([path.name, hashlib.file_digest(file, "sha256").hexdigest()])
        return {
            "command": [Path(word).name if "/" in word else word for word in self.command],
            "sha256": hashes,
        }


class VerifierFunction(TextVerifier):
    """A Python function that scores steps in the program's own process: no model, and no engine."""

    function: str
    """FILE.py:NAME, relative to the deployment file: (question, steps) -> score of the last step,
    or (chains) for a batch (docs/start/your-own-models.md)."""

    @property
    def title(self) -> str:
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
        """A copy with an absolute path; a relative one starts at `folder`."""
        file, _, name = self.function.rpartition(":")
        path = (folder / Path(file).expanduser()).resolve()
        return self.model_copy(update={"function": f"{path}:{name}"})


def _in(folder: Path, word: str) -> str:
    path = folder / Path(word).expanduser()
    return str(path.resolve()) if is_file(path) else word
