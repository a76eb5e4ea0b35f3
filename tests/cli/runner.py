"""`tts` in this process: what a command ends with, and what it says; deployments for it."""

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml
from typer.main import get_command

from tts.base import paths
from tts.base.errors import TtsError
from tts.cli import app, runs
from tts.cli.ending import BUG, exit_code_of
from tts.runs.config import RunConfig

COMMAND = get_command(app)
LLAMA = "llama-1b-prm-8b-h100-bf16"


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """All that it has said, in one line and without the frames of tables."""
        return " ".join(f"{self.out} {self.err}".replace("│", " ").split())


def tts(*words: object, columns: int = 120) -> Ended:
    """Run `tts` with these words; a bug fails the test."""
    before = signal.getsignal(signal.SIGTERM)
    with (
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
        patch.object(sys, "argv", ["tts", *map(str, words)]),
        patch.dict(os.environ, COLUMNS=str(columns)),
    ):
        try:
            code = exit_code_of(lambda: COMMAND(sys.argv[1:], prog_name="tts"))
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            signal.signal(signal.SIGTERM, before)
    assert code != BUG, err.getvalue()
    return Ended(code, out.getvalue(), err.getvalue())


def commands(command=COMMAND, path=()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every command and group with its path, `tts` itself first."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


def written(folder: Path, bundled: str = "demo", /, **changes: object) -> Path:
    """A file with a bundled deployment, `changes` by path: generator__max_seq_len=8."""
    folder_of_bundled = paths.deployments_dir()
    data = yaml.safe_load((folder_of_bundled / f"{bundled}.yaml").read_text())
    for role in ("generator", "verifier"):
        data[role]["checkpoint"] = str((folder_of_bundled / data[role]["checkpoint"]).resolve())
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = data
        for parent in parents:
            place = place[parent]
        place[last] = value
    file = folder / "own.yaml"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return file


def asked_runs(
    monkeypatch: pytest.MonkeyPatch, options_of: list[dict] | None = None
) -> list[RunConfig]:
    """The runs that commands ask for from now on, of which none is carried out.

    `options_of` gets the options of each.
    """
    asked: list[RunConfig] = []

    def ask(*arguments, **options):
        asked.extend(each for each in arguments if isinstance(each, RunConfig))
        if options_of is not None:
            options_of.append(options)
        raise TtsError("The run is not carried out.")

    for name in ("run_bench", "run_solve", "run_all"):
        monkeypatch.setattr(runs, name, ask)
    return asked
