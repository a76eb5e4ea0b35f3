"""A comparison of all strategies on a real server: one server, cold caches for each search."""

import json
import os
import signal
import time

import pytest
from tests.end_to_end.commands import summary, written_demo

from tts.base.errors import EndpointError
from tts.endpoints.triton import TritonConnection
from tts.lab.bench.group_run import run_all
from tts.lab.bench.single_run import run_bench
from tts.lab.observer import Observer
from tts.runs.config import RunConfig
from tts.serving.server import supervise
from tts.serving.server.start import start_server

pytestmark = pytest.mark.server


class Following(Observer):
    """An observer that keeps when each run began; `at_title` is called with each run's number."""

    def __init__(self, at_title=lambda number: None):
        self.began_at, self.said, self._at_title = [], [], at_title

    def say(self, line):
        self.said.append(line)
        if (number := line.partition("/")[0]).isdigit() and "already" not in line:
            self._at_title(int(number))

    def began(self, run, title):
        self.began_at.append(time.time())


@pytest.fixture
def small_steps(tts, tmp_path):
    """The demo pair, whose generator takes several steps for a prompt that it does not know."""
    few = {"max_num_tokens": 8, "max_batch_size": 8, "in_flight_requests": 8}
    return str(written_demo(tmp_path / "small-steps.yaml", generator=few))


@pytest.fixture
def started(monkeypatch):
    """The servers that sessions start."""
    servers = []

    def start(*args, **options):
        servers.append(start_server(*args, **options))
        return servers[-1]

    monkeypatch.setattr(supervise, "start_server", start)
    return servers


def wanted(deployment, strategy="all"):
    parameters = {} if strategy == "greedy" else {"n": 4}
    return RunConfig(
        deployment_source=deployment,
        dataset="demo",
        limit=1,
        strategy=strategy,
        schedule="lockstep",
        parameters=parameters,
    )


def prompt_steps(log, began):
    """How many steps the generator took for the first prompt after a moment."""
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    after = [step for step in steps if step["timestamp"] >= began]
    count = 0
    while after[count]["generation_requests"] == 0:
        count += 1
    return count


@pytest.mark.slow
def test_one_server_serves_every_search_and_each_finds_it_cold(small_steps, started, tmp_path):
    following = Following()
    folder = run_all(wanted(small_steps), tmp_path / "all", following)
    (only,) = started
    members = [file.parent.name for file in folder.glob("*/summary.json")]
    assert len(members) == len(following.began_at) > 4
    log = only.log.with_name("generator-iterations.jsonl")
    first, *others = [prompt_steps(log, began) for began in following.began_at]
    assert first >= 2, "a prompt that is known takes one step"
    assert others == [first] * len(others)
    for name in ("beam-search", "dvts"):
        alone = run_bench(wanted(small_steps, name), tmp_path / name, Observer())
        assert summary(alone)["tree_digest"] == summary(folder / name)["tree_digest"]


@pytest.mark.slow  # a death in a run: test_runs_server.py
def test_a_server_that_dies_or_keeps_its_caches_is_replaced_before_the_next_search(
    small_steps, started, tmp_path, monkeypatch
):
    answers = [False, EndpointError("The answer was lost.")]
    really = TritonConnection.reset_prefix_caches

    async def refuse(connection):
        if not answers:
            return await really(connection)
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    def kill(number):
        if number == 3:
            os.kill(started[1].state.server.pid, signal.SIGKILL)

    monkeypatch.setattr(TritonConnection, "reset_prefix_caches", refuse)
    monkeypatch.setattr("tts.fleet.engines._RESET_WAITS_S", (0.0, 0.0))
    names = ("greedy", "majority-vote", "adaptive-vote")
    folder = run_all(wanted(small_steps), tmp_path / "all", Following(kill), names=names)
    assert answers == [], "both were given before the second search"
    assert len(started) == 3
    rows = json.loads((folder / "comparison.json").read_text())["rows"]
    assert len({row["run"] for row in rows}) == 3
