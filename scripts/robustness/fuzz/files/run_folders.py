"""Damaged run folders for every command that reads one: none may show a changed result with rc 0.

Whole folders (runs, shards, a group, a run of `tts solve`) are made once, over scripted engines.
For each case one is copied, damaged (`run_damage`) and read by one command in this process. Right
is what the whole folder gives, or an error for the user; wrong is anything else.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest.mock import patch

import typer
from msgspec.structs import replace

from tts.build.errors import TtsError
from tts.build.spec import load_deployment
from tts.build.tokenizer import Tokenizer
from tts.cli import app
from tts.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tts.lab.bench import group_run, single_run
from tts.lab.bench.group_run import run_all
from tts.lab.bench.single_run import run_bench, run_solve
from tts.lab.observer import Observer
from tts.runs.config import RunConfig
from tts.runs.run import Run
from tts.session import AsyncSession

from .run_damage import DAMAGES

WANTED = RunConfig(
    deployment_source="demo",
    dataset="demo",
    limit=5,
    schedule="lockstep",
    parameters={"n": 4, "max_tokens": 16},
)
OTHER, SHARDS, GROUP, SOLVED = "other", ("shard-1", "shard-2"), "group", "solved"
RUN = "run"


@dataclass
class Outcome:
    """What the commands gave."""

    same: int = 0
    """Exit code 0, and what the whole folder gives."""
    refused: Counter[str] = field(default_factory=Counter)
    """Errors for the user, by type."""
    failures: list[str] = field(default_factory=list)


def fuzz_folders(number: int, seed: int) -> Outcome:
    """Damage `number` folders, and read each with a command."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="tts-fuzz-") as name, scripted_engines():
        whole, work = Path(name, "whole"), Path(name, "work")
        _make(whole)
        expected: dict[str, object] = {}
        for command, (_, read) in COMMANDS.items():
            shutil.copytree(whole, work)
            expected[command] = read(work)
            shutil.rmtree(work)
        for case in range(number):
            shutil.copytree(whole, work)
            read_one(work, random.Random(f"{seed}/{case}"), f"case {case}", expected, outcome)
            shutil.rmtree(work)
    return outcome


def read_one(
    work: Path, numbers: random.Random, case: str, expected: dict[str, object], outcome: Outcome
) -> None:
    """Damage a folder in `work`, and read it with a command."""
    command = numbers.choice(list(COMMANDS))
    folders, read = COMMANDS[command]
    damage = numbers.choice(DAMAGES)
    folder = numbers.choice(folders)
    case = f"{case}: {command}, {folder} after {damage.__name__}"
    try:
        damage(work / folder, work / OTHER, numbers)
        found = read(work)
    except (TtsError, typer.BadParameter) as error:
        outcome.refused[type(error).__name__] += 1
        return
    except Exception:
        outcome.failures.append(f"{case}\n{traceback.format_exc()}")
        return
    if found == expected[command]:
        outcome.same += 1
    else:
        outcome.failures.append(f"{case}\n{found!s:.2000}\ninstead of\n{expected[command]!s:.2000}")


def _tts(*words: str | Path) -> str:
    """What a command prints, but what it says meanwhile; raises what it ends with."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        app([str(word) for word in words], standalone_mode=False)
    return out.getvalue()


def _report(work: Path) -> object:
    return _tts("report", work / RUN)


def _report_both(work: Path) -> object:
    return _tts("report", work / RUN, work / OTHER)


def _report_group(work: Path) -> object:
    return _tts("report", work / GROUP)


def _compare(work: Path) -> object:
    return _tts("compare", work / RUN, work / OTHER)


def _trace(work: Path) -> object:
    _tts("trace", work / RUN, "--out", work / "out.pftrace")
    return (work / "out.pftrace").read_bytes()


def _merge(work: Path) -> object:
    out = work / "merged"
    return _tts("merge", *(work / shard for shard in SHARDS), "--out", out), _result(out)


def _resume(work: Path) -> object:
    _tts("bench", "--resume", work / RUN)
    return _result(work / RUN)


def _repair(work: Path) -> object:
    _tts("bench", "--resume", work / RUN, "--repair")
    return _result(work / RUN)


def _resume_group(work: Path) -> object:
    _tts("bench", "--resume", work / GROUP)
    return [_result(file.parent) for file in sorted((work / GROUP).glob("*/run.json"))]


def _load(folder: str, work: Path) -> object:
    run = Run.load(work / folder)
    return run.summary, run.problems, run.requests, run.measures


def _result(folder: Path) -> object:
    """What of a run stays the same when a part of it is computed again."""
    summary = json.loads((folder / "summary.json").read_bytes())
    names = ("tree_digest", "problems", "accuracy_by_rule", "parameters", "seed", "dataset")
    return {name: summary[name] for name in names}


COMMANDS: dict[str, tuple[Sequence[str], Callable[[Path], object]]] = {
    "report": ([RUN], _report),
    "report of two": ([RUN, OTHER], _report_both),
    "report of a group": ([GROUP], _report_group),
    "compare": ([RUN, OTHER], _compare),
    "trace": ([RUN], _trace),
    "merge": (SHARDS, _merge),
    "resume": ([RUN], _resume),
    "repair": ([RUN], _repair),
    "resume of a group": ([GROUP], _resume_group),
    "Run.load": ([RUN], partial(_load, RUN)),
    "Run.load of a solution": ([SOLVED], partial(_load, SOLVED)),
}
"""What reads folders: which of them may be damaged, and how."""


def _make(whole: Path) -> None:
    run_bench(WANTED, whole / RUN, Observer())
    run_bench(replace(WANTED, strategy="best-of-n"), whole / OTHER, Observer())
    for number, name in enumerate(SHARDS, start=1):
        shard = replace(WANTED, shard=f"{number}/{len(SHARDS)}")
        run_bench(shard, whole / name, Observer())
    group = replace(WANTED, limit=2, strategy="all", parameters={"max_tokens": 8})
    run_all(group, whole / GROUP, Observer())
    run_solve("2 + 2?", WANTED, whole / SOLVED, Observer(), lambda step: None)


@contextlib.contextmanager
def scripted_engines() -> Iterator[None]:
    """Engines without a model in the place of a server, for every command of this process."""
    spec = load_deployment("demo")
    encode = Tokenizer(spec.generator.checkpoint).encode
    words = [encode(word) for word in ("1", "22", r"\boxed{4}")], encode("\n\n")
    scripted = partial(
        AsyncSession, generator=ScriptedGenerator(*words), verifier=ScriptedVerifier()
    )
    with contextlib.ExitStack() as patches:
        for module in (single_run, group_run):
            patches.enter_context(patch.object(module, "load_checked", lambda name: spec))
        patches.enter_context(patch.object(single_run, "AsyncSession", scripted))
        patches.enter_context(patch.object(single_run, "require_current", lambda deployment: None))
        yield
