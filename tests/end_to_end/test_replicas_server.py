"""Two real servers of one deployment: one killed under load and back again; shards merged."""

import json
import os
import re
import signal
import time

import psutil
import pytest
from tests.end_to_end.commands import (
    Tts,
    events,
    summary,
    wait_for_events,
)

pytestmark = pytest.mark.server

RUN = ("--limit", "8", "--n", "8", "--seed", "0")


@pytest.fixture(scope="module")
def homes(new_home):
    """Two homes, as on two machines, and in each of them a server of the demo pair."""
    homes = [Tts(new_home()) for _ in range(2)]
    serving = [tts.start("serve", "demo") for tts in homes]
    for process in serving:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "Press Ctrl-C to stop" in line:
                break
        assert process.poll() is None, "".join(lines)
    yield homes
    for tts, process in zip(homes, serving, strict=True):
        code, out, err = tts.run("serve", "demo", "--stop")
        assert (code, process.wait(60)) == (0, 0), out + err
        process.communicate()
        assert tts.leftovers() == []


@pytest.fixture(scope="module")
def tts(homes):
    """The home whose command line is used."""
    return homes[0]


@pytest.fixture(scope="module")
def endpoints(homes):
    """The addresses of both servers."""
    addresses = [state(tts)["addresses"] for tts in homes]
    return [f"unix:{each['socket']}" for each in addresses]


def state(tts):
    file = tts.home / "built" / "demo" / "server" / "server.json"
    return json.loads(file.read_text()) if file.exists() else None


def at(endpoints):
    return [word for each in endpoints for word in ("--endpoint", each)]


def bench(tts, folder, *options):
    tts.done("bench", "demo", *RUN, "--out", folder, *options)
    return summary(folder)


@pytest.mark.slow  # without processes: tests/session/test_replicas.py
def test_the_trees_are_the_same_however_many_servers_and_shards_and_whatever_dies(
    tts, homes, endpoints, tmp_path
):
    one = bench(tts, tmp_path / "one", *at(endpoints[:1]))
    assert set(one["servers"]) == {endpoints[0]}

    running = tts.start("bench", "demo", *RUN, "--out", tmp_path / "two", *at(endpoints))
    wait_for_events(running, tmp_path / "two", "problem_solved", 2)
    killed = state(homes[1])["server"]["pid"]
    os.kill(killed, signal.SIGKILL)
    _, err = running.communicate(timeout=180)
    assert running.returncode == 0, err
    two = summary(tmp_path / "two")
    assert set(two["servers"]) == set(endpoints)
    assert two["tree_digest"] == one["tree_digest"]
    log = events(tmp_path / "two")
    written = [(e["problem"], tuple(e["node"])) for e in log if e["event"] == "generated"]
    assert len(set(written)) == len(written)
    for kind in ("problem_started", "problem_solved"):
        assert sorted(e["problem"] for e in log if e["event"] == kind) == sorted(
            {problem for problem, _ in written}
        )

    deadline = time.monotonic() + 60  # it is started again, at the same address
    while (now := state(homes[1])) is None or now["server"]["pid"] == killed:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    folders = [tmp_path / f"shard{number}" for number in (1, 2)]
    used = set()
    for number, folder in enumerate(folders, start=1):
        shard = bench(tts, folder, *at(endpoints), "--shard", f"{number}/2")
        used |= set(shard["servers"])
    assert used == set(endpoints)
    out, err = tts.done("runs", "merge", *folders, "--out", tmp_path / "merged")
    assert f"server {endpoints[1]}" in out + err
    assert summary(tmp_path / "merged")["tree_digest"] == one["tree_digest"]
    tts.done("report", tmp_path / "one", tmp_path / "merged")


@pytest.mark.slow
def test_a_killed_process_of_ray_goes_on_with_its_shard_from_the_log(tts, endpoints, tmp_path):
    pytest.importorskip("ray")
    one = bench(tts, tmp_path / "one", *at(endpoints))
    out = tmp_path / "whole"
    running = tts.start("bench", "demo", *RUN, "--out", out, *at(endpoints), "--ray")
    log, process = working_process(running, out)
    process.kill()
    _, err = running.communicate(timeout=180)
    assert running.returncode == 0, err
    whole = summary(out)
    assert whole["tree_digest"] == one["tree_digest"]
    assert set(whole["servers"]) == set(endpoints)
    assert sum(event["event"] == "session" for event in events(log)) == 2
    solved = [event["problem"] for event in events(log) if event["event"] == "problem_solved"]
    assert len(set(solved)) == len(solved)
    written = [(e["problem"], *e["node"]) for e in events(log) if e["event"] == "generated"]
    assert len(set(written)) == len(written)


def working_process(running, out):
    """The folder of a shard that has begun, and the process of Ray that works there."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert running.poll() is None, running.stderr.read()
        for lock in (out / "shards").glob("*/.lock"):
            solved = sum(event["event"] == "generated" for event in events(lock.parent))
            if solved and not (lock.parent / "summary.json").exists():
                for process in psutil.Process(running.pid).children(recursive=True):
                    if str(process.pid) in re.findall(r"\d+", lock.read_text()):
                        return lock.parent, process
        time.sleep(0.01)
    raise AssertionError("no shard has begun")
