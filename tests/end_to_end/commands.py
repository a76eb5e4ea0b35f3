"""The command line in a process of its own, and what its runs leave behind."""

import asyncio
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import psutil
import pytest
import yaml
from tests.commands import prepared

from tts.base import paths
from tts.build.spec import load_deployment
from tts.lab import campaign
from tts.lab.bench.single_run import prepare
from tts.lab.campaign import Campaign
from tts.lab.observer import Observer
from tts.runs.config import RunConfig
from tts.scheduling import ScheduleName
from tts.session import AsyncSession


class Tts:
    """The command line with a home of its own, and a watch on what it leaves behind."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.started = []

    def _variables(self):
        return {**os.environ, "TTS_HOME": str(self.home)}

    def start(self, *arguments, ignored=()):
        """A command that has begun, in a fork that has the imports behind it."""
        command = prepared().start([*map(str, arguments)], self._variables(), ignored)
        self.started.append(command)
        return command

    def run(self, *arguments):
        """Exit code, output and error of a command, in a fork that has the imports behind it."""
        code, out, err = prepared().run([*map(str, arguments)], self._variables(), timeout_s=180)
        assert "Traceback" not in err, err
        assert "This is a bug" not in err, err
        return code, out, err

    def done(self, *arguments):
        """Output and error of a command that succeeds."""
        code, out, err = self.run(*arguments)
        assert code == 0, err
        return out, err

    def leftovers(self):
        """Commands that still run and processes that name this home, after a moment's grace."""
        for _ in range(50):
            left = [command for command in self.started if command.poll() is None]
            left += [each for each in psutil.process_iter() if belongs_to(self.home, each)]
            if not left:
                return []
            time.sleep(0.1)
        return left


def belongs_to(home, process):
    """Whether a process was started in a home or for one: a server runs in its own folder there."""
    try:
        words = [process.cwd(), *process.cmdline()]
    except psutil.Error:
        return False
    return any(str(home) in word for word in words)


def written_demo(file, **sections):
    """The demo pair's deployment in a file, with other values of some sections."""
    here = paths.deployments_dir()
    data = yaml.safe_load((here / "demo.yaml").read_text())
    for role in ("generator", "verifier"):
        data[role]["checkpoint"] = str((here / data[role]["checkpoint"]).resolve())
    for name, values in sections.items():
        data[name] = {**data.get(name, {}), **values}
    file.write_text(yaml.safe_dump(data))
    return file


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def events(folder):
    """Those of a run's log that are whole: its last line may be on its way."""
    file = folder / "events.jsonl"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def wait_for_events(process, folder, kind, count):
    deadline = time.monotonic() + 60
    while sum(event["event"] == kind for event in events(folder)) < count:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def servers(tts):
    return [
        process
        for process in psutil.process_iter(["name"])
        if process.info["name"] == "tritonserver" and belongs_to(tts.home, process)
    ]


def carry_out(plan, folder):
    """Run a plan on the server that runs; its summary."""

    async def plans():
        return {"": (plan, folder)}

    campaign.carry_out(Campaign(Observer(), cold=False), plans(), folder, "")
    return summary(folder)


@contextmanager
def quiet(home):
    """The command line with this home, where nothing runs any more at the end."""
    tts = Tts(home)
    yield tts
    assert tts.leftovers() == []


@contextmanager
def built_alone(name, home, said):
    """A bundled deployment whose engines are built in this home; `said` is what that says."""
    with quiet(home) as tts:
        out, err = tts.done("build-engines", name, "--no-verify")
        assert said in out + err
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TTS_HOME", str(tts.home))
            yield load_deployment(name)


def grown_under_every_schedule(deployment, problems, parameters, folder):
    """Beam search on embedded engines, under each schedule: tree digests and all scores."""
    plans = {
        schedule: prepare(
            RunConfig(
                deployment_source=deployment,
                dataset="demo",
                limit=len(problems),
                schedule=schedule,
                parameters=parameters,
                server="embedded",
            ),
            Observer(),
            problems=problems,
        )
        for schedule in get_args(ScheduleName)
    }

    async def grow():
        async with AsyncSession(plans["decoupled"].deployment) as session:
            for schedule, plan in plans.items():
                results = [result async for result in session.run(plan, folder / schedule)]
                assert len(results) == len(problems)

    asyncio.run(grow())
    digests = {summary(folder / schedule)["tree_digest"] for schedule in plans}
    logs = [event for schedule in plans for event in events(folder / schedule)]
    return digests, [event["score"] for event in logs if event["event"] == "scored"]


def part_of_server(tts, part, server=None):
    """A process of the server that runs: `server`, `stub`, or the engine of a model by its name."""
    if server is None:
        (server,) = servers(tts)
    if part == "server":
        return server
    stubs = [p for p in server.children(recursive=True) if "stub" in p.name()]
    if part == "stub":
        return stubs[0]
    (engine,) = next(p for p in stubs if f"/{part}/1/model.py" in p.cmdline()[1]).children()
    return engine
