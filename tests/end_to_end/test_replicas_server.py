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
    servers,
    summary,
    wait_for_events,
    whole_events,
)

pytestmark = pytest.mark.server

RUN = ("--limit", "8", "--n", "8", "--seed", "0")


@pytest.fixture(scope="module")
def tts(new_home):
    """A home for the servers of all tests."""
    tts = Tts(new_home())
    yield tts
    assert tts.leftovers() == []


@pytest.fixture(scope="module")
def replicas(tts):
    """`tts serve demo --replicas 2`, ready."""
    process = tts.start("serve", "demo", "--replicas", "2")
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "Press Ctrl-C to stop all of them" in line:
            break
    assert process.poll() is None, "".join(lines)
    yield process
    code, out, err = tts.run("serve", "demo", "--stop")
    assert (code, process.wait(60)) == (0, 0), out + err
    process.communicate()
    assert servers(tts) == []


def state(tts, number):
    folder = "server" if number == 1 else f"server-{number}"
    file = tts.home / "built" / "demo" / folder / "server.json"
    return json.loads(file.read_text()) if file.exists() else None


def bench(tts, folder, *options):
    code, _, err = tts.run("bench", "demo", *RUN, "--out", folder, *options)
    assert code == 0, err
    return summary(folder)


@pytest.mark.slow  # without processes: tests/session/test_replicas.py
def test_the_trees_are_the_same_however_many_servers_and_shards_and_whatever_dies(
    tts, replicas, tmp_path
):
    one = bench(tts, tmp_path / "one", "--endpoint", "demo@1")
    assert set(one["servers"]) == {"demo@1"}

    running = tts.start("bench", "demo", *RUN, "--out", tmp_path / "two")
    wait_for_events(running, tmp_path / "two", "problem_solved", 2)
    killed = state(tts, 2)["server"]["pid"]
    os.kill(killed, signal.SIGKILL)
    _, err = running.communicate(timeout=180)
    assert running.returncode == 0, err
    two = summary(tmp_path / "two")
    assert set(two["servers"]) == {"demo@1", "demo@2"}
    assert two["tree_digest"] == one["tree_digest"]
    log = events(tmp_path / "two")
    written = [(e["problem"], tuple(e["node"])) for e in log if e["event"] == "generated"]
    assert len(set(written)) == len(written)
    for kind in ("problem_started", "problem_solved"):
        assert sorted(e["problem"] for e in log if e["event"] == kind) == sorted(
            {problem for problem, _ in written}
        )

    deadline = time.monotonic() + 60  # it is started again, at the same address
    while (now := state(tts, 2)) is None or now["server"]["pid"] == killed:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    folders = [tmp_path / f"shard{number}" for number in (1, 2)]
    used = set()
    for number, folder in enumerate(folders, start=1):
        used |= set(bench(tts, folder, "--shard", f"{number}/2")["servers"])
    assert used == {"demo@1", "demo@2"}
    code, out, err = tts.run("runs", "merge", *folders, "--out", tmp_path / "merged")
    assert code == 0, err
    assert "server demo@2" in out + err
    assert summary(tmp_path / "merged")["tree_digest"] == one["tree_digest"]
    code, out, err = tts.run("runs", "compare", tmp_path / "one", tmp_path / "merged")
    assert code == 0, err


@pytest.mark.slow
def test_a_killed_process_of_ray_goes_on_with_its_shard_from_the_log(tts, replicas, tmp_path):
    pytest.importorskip("ray")
    one = bench(tts, tmp_path / "one")
    out = tmp_path / "whole"
    endpoints = ("--endpoint", "demo@1", "--endpoint", "demo@2")
    running = tts.start("bench", "demo", *RUN, "--out", out, *endpoints, "--ray")
    log, process = working_process(running, out)
    process.kill()
    _, err = running.communicate(timeout=180)
    assert running.returncode == 0, err
    whole = summary(out)
    assert whole["tree_digest"] == one["tree_digest"]
    assert set(whole["servers"]) == {"demo@1", "demo@2"}
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
            solved = sum(event["event"] == "generated" for event in whole_events(lock.parent))
            if solved and not (lock.parent / "summary.json").exists():
                for process in psutil.Process(running.pid).children(recursive=True):
                    if str(process.pid) in re.findall(r"\d+", lock.read_text()):
                        return lock.parent, process
        time.sleep(0.01)
    raise AssertionError("no shard has begun")


def test_a_second_server_of_the_same_name_is_refused(tts, replicas):
    code, _, err = tts.run("serve", "demo", "--replicas", "2")
    assert code == 1
    assert "already served by another process" in err
