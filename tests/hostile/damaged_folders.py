"""Whole run folders, ways to damage them, and the commands that read them.

Whole folders (runs, shards, a group, a run of `tts solve`) are made over scripted engines. Damages
are those of a disk, a hand or a command in the wrong place.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from unittest.mock import patch

from msgspec.structs import replace
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.hostile.mutations import mutated

from tts.build.spec import load_deployment
from tts.build.tokenizer import Tokenizer
from tts.cli import app
from tts.fleet import connecting
from tts.lab import campaign
from tts.lab.bench import single_run
from tts.lab.bench.group_run import run_all
from tts.lab.bench.single_run import run_bench, run_solve
from tts.lab.observer import Observer
from tts.runs.checks import read_summary_fields, write_summary
from tts.runs.config import RunConfig
from tts.runs.events import decode, encode
from tts.runs.log import ChecksumChain
from tts.runs.run import Run
from tts.session import AsyncSession

WANTED = RunConfig(
    deployment_source="demo",
    dataset="demo",
    limit=5,
    schedule="lockstep",
    parameters={"n": 4, "max_tokens": 16},
)
OTHER, SHARDS, GROUP, SOLVED = "other", ("shard-1", "shard-2"), "group", "solved"
RUN = "run"
Damage = Callable[[Path, Path, random.Random], None]
"""Changes one thing in a folder, drawn from random numbers, beside another run's folder."""
_LOG = "events.jsonl"


def _tts(*words: str | Path) -> str:
    """What a command prints, but what it says meanwhile; raises what it ends with."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        app([str(word) for word in words], standalone_mode=False)
    return out.getvalue()


def _report(*names: str) -> Callable[[Path], object]:
    return lambda work: _tts("report", *(work / name for name in names))


def _trace(work: Path) -> object:
    _tts("runs", "trace", work / RUN, "--to", work / "out.json")
    return (work / "out.json").read_bytes()


def _merge(work: Path) -> object:
    out = work / "merged"
    return _tts("runs", "merge", *(work / shard for shard in SHARDS), "--out", out), _result(out)


def _resume(work: Path, *options: str) -> object:
    _tts("bench", "--resume", work / RUN, *options)
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
    "report": ([RUN], _report(RUN)),
    "report of two": ([RUN, OTHER], _report(RUN, OTHER)),
    "report of a group": ([GROUP], _report(GROUP)),
    "trace": ([RUN], _trace),
    "merge": (SHARDS, _merge),
    "resume": ([RUN], _resume),
    "repair": ([RUN], lambda work: _resume(work, "--repair")),
    "resume of a group": ([GROUP], _resume_group),
    "Run.load": ([RUN], partial(_load, RUN)),
    "Run.load of a solution": ([SOLVED], partial(_load, SOLVED)),
}
"""What reads folders: which of them may be damaged, and how."""


def make(whole: Path) -> None:
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
    encode = Tokenizer(spec.generator.tokenizer_folder).encode
    words = [encode(word) for word in ("1", "22", r"\boxed{4}")], encode("\n\n")
    scripted = partial(
        AsyncSession, generator=ScriptedGenerator(*words), verifier=ScriptedVerifier()
    )
    with contextlib.ExitStack() as patches:
        patches.enter_context(patch.object(single_run, "deployment_of", lambda config: spec))
        patches.enter_context(patch.object(campaign, "AsyncSession", scripted))
        for step in ("require_current", "build_if_quick"):
            patches.enter_context(patch.object(connecting, step))
        yield


def _file(folder: Path, numbers: random.Random) -> Path:
    """One of a folder's files, the log as often as all others."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.stat().st_size)
    logs = [file for file in files if file.name == _LOG]
    return numbers.choice(logs if logs and numbers.random() < 0.5 else files)


def _log(folder: Path, numbers: random.Random) -> Path:
    return numbers.choice(sorted(folder.rglob(_LOG)))


def mutate_a_file(folder: Path, other: Path, numbers: random.Random) -> None:
    """Bytes, lines or JSON values of a file are others (`mutations`)."""
    file = _file(folder, numbers)
    file.write_bytes(mutated(file.read_bytes(), numbers))


def change_a_value(folder: Path, other: Path, numbers: random.Random) -> None:
    """One digit of a file is the next one, or a true is false."""
    file = _file(folder, numbers)
    data = file.read_bytes()
    if values := list(re.finditer(rb"\d|\b(true|false)\b", data)):
        match = numbers.choice(values)
        others = {b"true": b"false", b"false": b"true"}
        new = others.get(match[0]) or b"%d" % ((int(match[0]) + 1) % 10)
        file.write_bytes(data[: match.start()] + new + data[match.end() :])


def change_lines(folder: Path, other: Path, numbers: random.Random) -> None:
    """Drop a line of the log, give it twice, swap two, or take one of another run."""
    log = _log(folder, numbers)
    lines = log.read_bytes().splitlines(keepends=True)
    one, another = numbers.randrange(len(lines)), numbers.randrange(len(lines))
    match numbers.randrange(5):
        case 0:
            del lines[one]
        case 1:
            lines.insert(another, lines[one])
        case 2:
            lines[one], lines[another] = lines[another], lines[one]
        case 3:
            del lines[min(one, another) : max(one, another)]
        case _:
            lines[one] = numbers.choice((other / _LOG).read_bytes().splitlines(keepends=True))
    log.write_bytes(b"".join(lines))


def cut_the_log(folder: Path, other: Path, numbers: random.Random) -> None:
    """Anywhere, or behind a line."""
    log = _log(folder, numbers)
    data = log.read_bytes()[: numbers.randrange(log.stat().st_size)]
    log.write_bytes(data if numbers.random() < 0.5 else data[: data.rfind(b"\n") + 1])


def lose_problems(folder: Path, other: Path, numbers: random.Random) -> None:
    """Drop all that the log says of some problems; what is left may get right checksums again."""
    log = _log(folder, numbers)
    summary = read_summary_fields(log.parent)
    events = [decode(line) for line in log.read_bytes().splitlines()]
    names = sorted({event.problem for event in events if hasattr(event, "problem")})
    lost = numbers.sample(names, numbers.randint(1, len(names)))
    chain = ChecksumChain()
    kept = [event for event in events if getattr(event, "problem", None) not in lost]
    log.write_bytes(b"".join(chain.seal(encode(event)) for event in kept))
    if numbers.random() < 0.5:
        write_summary(log.parent, summary | {"problems": len(names) - len(lost)})


def take_anothers(folder: Path, other: Path, numbers: random.Random) -> None:
    """A file of another run in the place of this one's, as a file or a link."""
    names = [_LOG, "run.json", "summary.json"]
    file = numbers.choice(sorted(f for f in folder.rglob("*.json*") if f.name in names))
    file.unlink()
    if numbers.random() < 0.5:
        shutil.copyfile(other / file.name, file)
    else:
        file.symlink_to(other / file.name)


def take_away(folder: Path, other: Path, numbers: random.Random) -> None:
    """Remove a file, or put something there that is none."""
    file = _file(folder, numbers)
    match numbers.randrange(6):
        case 0:
            file.write_bytes(b"")
        case 1:
            file.unlink()
            file.mkdir()
        case 2:
            file.unlink()
            file.symlink_to(file.with_name("nothing"))
        case 3:
            file.unlink()
            os.mkfifo(file)
        case 4:
            file.chmod(0)
        case _:
            file.unlink()


def swap_runs(folder: Path, other: Path, numbers: random.Random) -> None:
    """Put two runs of a group in each other's place, or another run in that of one."""
    runs = sorted(file.parent for file in folder.glob("*/run.json"))
    if not runs:
        return
    one, another = numbers.sample(runs, 2)
    if numbers.random() < 0.5:
        shutil.rmtree(one)
        shutil.copytree(other, one)
    else:
        aside = one.rename(one.with_name("aside"))
        another.rename(one)
        aside.rename(another)


DAMAGES: tuple[Damage, ...] = (
    *[mutate_a_file] * 3,
    *[change_a_value] * 3,
    *[change_lines] * 2,
    *(cut_the_log, lose_problems, take_anothers, take_away, swap_runs),
)
