"""Run folders that somebody else has made: nothing outside them is written, read out or executed.

Every command that opens one ends, with a result or in a sentence.
"""

import hashlib
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.cli.runner import tts
from tests.hostile.damaged_folders import GROUP, RUN, SHARDS, make, scripted_engines
from tests.lab.bench.runs import edit

from tts.base.errors import RunError
from tts.runs.checks import write_summary
from tts.runs.events import ProblemSolved, SessionBegan, encode
from tts.runs.folder import EVENTS, read_config, read_json
from tts.runs.log import ChecksumChain, read_events

LONG = "x" * 300
ESCAPE = "\x1b]0;mine\x07\x1b[2J\x9b1m"
CODE = (
    "from pathlib import Path\nPath({!r}).write_text('')\ndef score(question, steps): return 0.5\n"
)


def seal(run):
    """Let the summary fit the other files, as whoever wants to be believed does."""
    with suppress(RunError, OSError):
        write_summary(run, read_json(run / "summary.json", ""))


def rewrite_log(run, change):
    chain, events = ChecksumChain(), list(read_events(run))
    lines = (chain.seal(encode(event)) for event in map(change, events) if event)
    (run / EVENTS).write_bytes(b"".join(lines))


def unnamed(event):
    """A session that names no checksums, so that files can be exchanged."""
    return replace(event, files={}) if isinstance(event, SessionBegan) else event


def unfinished(run):
    """Leave the first problem solved and nothing else."""
    lines = (run / EVENTS).read_bytes().splitlines(keepends=True)
    solved = next(n for n, each in enumerate(read_events(run)) if isinstance(each, ProblemSolved))
    (run / EVENTS).write_bytes(b"".join(lines[: solved + 1]))
    (run / "summary.json").unlink()


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """A run, shards and a group, as they were made, whose files can be exchanged."""
    where = tmp_path_factory.mktemp("bases")
    with scripted_engines():
        make(where)
        for run in (where / RUN, where / SHARDS[0]):
            rewrite_log(run, unnamed)
            seal(run)
        yield where


# A case is a change of a run's folder; what is outside of the folder must stay as it is.


def link(name):
    def change(run, outside):
        there, here = outside / Path(name).name, run / name.format(pid=os.getpid())
        if name in ("engine-steps", "figures"):
            there.mkdir()
            for file in ("001.js", "999.js", "generator.jsonl", "victim.csv"):
                (there / file).write_text("mine")
        elif here.is_file():
            shutil.copy(here, there)
        else:
            there.write_text("mine")
        here.parent.mkdir(exist_ok=True)
        shutil.rmtree(here, ignore_errors=True)
        here.unlink(missing_ok=True)
        here.symlink_to(there)

    return change


def hard_link(name):
    def change(run, outside):
        if (run / name).exists():
            (run / name).rename(outside / name)
        else:
            (outside / name).write_text("mine")
        (run / name).hardlink_to(outside / name)

    return change


def pipe(name):
    def change(run, outside):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)

    return change


def moved(run, outside):
    run.rename(outside / run.name)
    run.symlink_to(outside / run.name)


def circle(run, outside):
    (run / "run.json").unlink()
    (run / "run.json").symlink_to("run.json")


def config(**changes):
    def change(run, outside):
        there = json.loads(json.dumps(changes).replace("OUTSIDE", str(outside)))
        (outside / "own_code.py").write_text(CODE.format(str(outside / "was-here")))
        (outside / "secret.jsonl").write_text('{"problem": "secret", "answer": "1"}\n' * 2)
        edit(run / "run.json", **there)

    return change


def text(name, content):
    def change(run, outside):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text(content)

    return change


def sparse(name):
    return lambda run, outside: os.truncate(run / name, 3 * 2**30)


def summary(run, outside):
    if (run / "summary.json").exists():
        edit(run / "summary.json", crc=[1], problems="x")


def session(time):
    return lambda run, outside: rewrite_log(
        run, lambda e: replace(e, time=time) if isinstance(e, SessionBegan) else e
    )


def code_as(role, name="OUTSIDE/own_code.py"):
    source = {"file": name, "name": "score", "sha256": ""}
    return config(sources={role: source}, functions={role: "own_code.score"})


LINKED = (
    *(".lock", EVENTS, "run.json", "summary.json", "problems.jsonl", "report.html", "trace.json"),
    *(".report.html.{pid}", ".trace.json.{pid}", ".summary.json.{pid}"),
    *("engine-steps", "engine-steps/generator.jsonl", "figures", "figures/accuracy.csv"),
)
PIPES = (
    *(".lock", EVENTS, "run.json", "summary.json", "problems.jsonl"),
    "engine-steps/generator.jsonl",
)
CASES = {
    **{f"{name}-link": link(name) for name in LINKED},
    **{f"{name}-hard-link": hard_link(name) for name in (EVENTS, ".lock")},
    **{f"{name}-pipe": pipe(name) for name in PIPES},
    "folder-link": moved,
    "circle": circle,
    "verifier": code_as("verifier"),
    "strategy": code_as("strategy"),
    "other-role": code_as("; touch OUTSIDE/was-here"),
    "code-nul": code_as("verifier", "\0.py"),
    "code-long": code_as("verifier", f"/{LONG}.py"),
    "dataset-nul": config(dataset="\0"),
    "dataset-long": config(dataset=f"/{LONG}"),
    "dataset-escape": config(dataset=f"OUTSIDE/{ESCAPE}"),
    "dataset-outside": config(dataset="OUTSIDE/secret.jsonl"),
    "deployment-nul": config(deployment_source="\0", deployment="\0\n"),
    "deployment-escape": config(deployment_source=ESCAPE, deployment=ESCAPE),
    "strategy-escape": config(strategy=ESCAPE, vote=ESCAPE),
    "strategy-long": config(strategy=LONG, deployment_digest=ESCAPE),
    "ids": config(problem_ids=["\0", ESCAPE, LONG, "../x"]),
    "types": config(problem_ids=7, parameters=[], seed="x"),
    "digits": text("run.json", '{"seed": ' + "9" * 9000 + "}"),
    "deep": text("run.json", '{"parameters": ' + "[" * 100_000),
    "no-object": text("run.json", "[]"),
    "huge-config": sparse("run.json"),
    "huge-log": sparse(EVENTS),
    "deep-log": text(EVENTS, "[" * 100_000 + "\n"),
    "deep-step": text("engine-steps/generator.jsonl", "[" * 100_000 + "\n"),
    "lock-number": text(".lock", f"process {'9' * 99} on {os.uname().nodename}"),
    "summary-types": summary,
    "time-none": session("\0"),
    "time-naive": session("2026-01-01T00:00:00"),
    "time-first": session("0001-01-01T00:00:00+14:00"),
}
USUAL = {
    *(".lock-link", f"{EVENTS}-link", ".report.html.{pid}-link", "engine-steps-link"),
    *("figures-link", "folder-link", "run.json-pipe", "verifier", "strategy-escape", "deep-log"),
}
"""The others take minutes."""
MEMBERS = ["../x", "/etc", ".", "..", "a/b", "\0", "a\nb", LONG, ESCAPE, "", "link"]


def state(folder):
    return {
        path.relative_to(folder): (path.lstat().st_mode, path.is_file() and path.read_bytes())
        for path in folder.rglob("*")
        if path.lstat().st_size < 10**8
    }


def said(*words):
    """What a command says, and its exit code; no control characters of others are in it."""
    ended = tts(*words)
    assert not {"\x1b", "\x9b", "\x07", "\0"} & set(ended.out + ended.err), ended
    return ended.code, ended.said


@pytest.mark.parametrize(
    "name",
    [name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in CASES],
)
def test_a_hostile_run(bases, tmp_path, name):
    folders = [tmp_path / "runs" / each for each in ("run", "shard", "cut")]
    for folder, base in zip(folders, (RUN, SHARDS[0], RUN), strict=True):
        shutil.copytree(bases / base, folder)
    unfinished(folders[-1])
    outside = tmp_path / "outside"
    for folder in folders:
        (outside / folder.name).mkdir(parents=True)
        CASES[name](folder, outside / folder.name)
        seal(folder)
    before = state(outside)
    run, shard, cut = folders
    good = shutil.copytree(bases / RUN, tmp_path / "good")
    code, text = said("runs", "list", tmp_path / "runs")
    assert code == 0, text
    said("report", run, "--format", "csv", "--format", "tex")
    said("report", good, run)
    said("runs", "trace", run)
    said("runs", "merge", shard, bases / SHARDS[1], "--out", tmp_path / "merged")
    said("bench", "--resume", cut)
    said("bench", "--resume", cut, "--repair")
    assert state(outside) == before


@pytest.mark.parametrize("name", MEMBERS, ids=range(len(MEMBERS)))
def test_a_hostile_group(bases, tmp_path, name):
    group = shutil.copytree(bases / GROUP, tmp_path / "runs" / "group")
    members = read_json(group / "group.json", "")["runs"]
    there = shutil.move(group / members[0]["folder"], tmp_path / "x")
    unfinished(tmp_path / "x")
    (group / "link").symlink_to(there)
    edit(group / "group.json", runs=[{**members[0], "folder": name}, *members[1:]])
    before = state(tmp_path / "x")
    code, text = said("runs", "list", tmp_path / "runs")
    assert code == 0
    assert "group" in text
    for command in (
        ("report",),
        ("runs", "trace"),
        ("report", bases / RUN),
        ("bench", "--resume"),
    ):
        assert said(*command, group)[0] == 1
    assert state(tmp_path / "x") == before


def test_code_and_other_machines_are_used_only_if_they_are_named_again(bases, tmp_path):
    run = shutil.copytree(bases / RUN, tmp_path / "run")
    unfinished(run)
    file = tmp_path / "own_code.py"
    CASES["verifier"](run, tmp_path)
    source = {
        **read_config(run)["sources"]["verifier"],
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }
    edit(run / "run.json", sources={"verifier": source})
    code, text = said("bench", "--resume", run)
    assert code == 1
    assert f"tts bench --resume {run} --verifier {file}:score" in text
    assert not (tmp_path / "was-here").exists()
    code, text = said("bench", "--resume", run, "--verifier", f"{file}:score")
    assert code == 0, text
    assert (tmp_path / "was-here").exists()


@pytest.mark.parametrize(
    ("where", "told"), [("http://192.0.2.1:9", "other machines"), ("http://localhost:9", "")]
)
def test_a_deployment_elsewhere_is_named_again(bases, tmp_path, where, told):
    run = shutil.copytree(bases / RUN, tmp_path / "run")
    unfinished(run)
    role = {"url": where, "tokenizer": "nobody/nothing", "max_seq_len": 64}
    generator = {**role, "in_flight_requests": 2}
    verifier = {**role, "in_flight_tokens": 512, "format": "rlhflow"}
    deployment = {"name": "far", "target": "openai", "generator": generator, "verifier": verifier}
    (tmp_path / "far.yaml").write_text(json.dumps(deployment))
    edit(run / "run.json", deployment_source=str(tmp_path / "far.yaml"))
    text = said("bench", "--resume", run)[1]
    assert told in text
    again = f"tts bench {tmp_path / 'far.yaml'} --resume {run}"
    assert (again in text) == bool(told)
    assert said("report", shutil.copytree(bases / RUN, tmp_path / "other"))[0] == 0
