"""Several servers on one machine: which there are, how they are watched, started and stopped."""

import os
import subprocess
import sys
import threading

import pytest

from tts.build import paths
from tts.build.errors import ServerError
from tts.serving.command.ports import Addresses
from tts.serving.repository.render import iteration_logs
from tts.serving.server import replicas
from tts.serving.server import supervise as supervise_module
from tts.serving.server.health import ReplicaHealth
from tts.serving.server.replicas import (
    known_replicas,
    running_replicas,
    stop_replicas,
    supervise_replicas,
)
from tts.serving.server.state import STATE, ServerState, identify, write_state


@pytest.fixture
def deployment(tiny_deployment, tmp_path, monkeypatch):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    return tiny_deployment


def write(replica, pid=None):
    """The state of a replica that runs as this process, or another."""
    folder = paths.server_dir(replica.server_name)
    folder.mkdir(parents=True, exist_ok=True)
    server = identify(pid or os.getpid())
    state = ServerState(replica.server_name, "", Addresses("127.0.0.1", 1, 0, 2), server)
    write_state(folder / STATE, state)
    return state


def test_replicas_are_known_by_their_folders_and_run_by_their_processes(deployment):
    assert [each.number for each in known_replicas(deployment)] == [1]
    assert running_replicas(deployment) == []
    for number in (1, 3, 10):
        write(deployment.replica(number))
    paths.server_dir("tiny@x").mkdir()
    assert [each.number for each in known_replicas(deployment)] == [1, 3, 10]
    paths.server_dir("tiny@3").joinpath(STATE).unlink()
    assert [each.server_name for each in running_replicas(deployment)] == ["tiny", "tiny@10"]


def test_every_replica_has_files_of_its_own(deployment):
    two = deployment.replica(2)
    assert paths.server_dir(two.server_name) != paths.server_dir(deployment.server_name)
    assert paths.repository_dir(two.server_name) != paths.repository_dir(deployment.server_name)
    assert paths.engine_dir(two.name, "generator") == paths.engine_dir("tiny", "generator")
    assert set(iteration_logs(two).values()).isdisjoint(iteration_logs(deployment).values())


def test_a_replica_is_watched_through_its_restarts(deployment):
    two = deployment.replica(2)
    with pytest.raises(ServerError, match="No server of tiny@2 is running"):
        ReplicaHealth(two)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    write(two, process.pid)
    health = ReplicaHealth(two)
    health.check()
    process.communicate(b"\n")
    with pytest.raises(ServerError, match=r"The Triton server died\."):
        health.check()
    write(two)
    health.check()
    assert health.address == "127.0.0.1:1"


class Supervised:
    """Supervisors that do what a test wants, by the name of their server."""

    def __init__(self, fails=()):
        self.fails = dict(fails)
        self.log = []

    def __call__(self, deployment, *, lasting, shared, say, on_loading, on_ready, stop):
        name = deployment.server_name
        self.log.append(f"{name} starts")
        if self.fails.get(name) == "starting":
            raise ServerError(f"{name} does not start")
        on_ready()
        self.log.append(f"{name} serves")
        if self.fails.get(name) == "serving":
            raise ServerError(f"{name} fails too often")
        stop.wait()
        self.log.append(f"{name} stopped")


def supervised(monkeypatch, deployment, fails=(), said=None):
    told = Supervised(fails)
    monkeypatch.setattr(supervise_module, "supervise", told)
    return told, lambda: supervise_replicas(
        deployment, 2, say=([] if said is None else said).append
    )


def test_servers_start_one_after_the_other_and_stop_together(deployment, monkeypatch):
    told, serve = supervised(monkeypatch, deployment)
    told_wait = threading.Event.wait

    def wait(event, timeout=None):  # Ctrl-C once both serve
        if threading.current_thread() is threading.main_thread() and len(told.log) == 4:
            raise KeyboardInterrupt
        return told_wait(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", wait)
    serve()
    assert told.log[:4] == ["tiny starts", "tiny serves", "tiny@2 starts", "tiny@2 serves"]
    assert sorted(told.log[4:]) == ["tiny stopped", "tiny@2 stopped"]


def test_one_that_does_not_start_ends_the_others(deployment, monkeypatch):
    told, serve = supervised(monkeypatch, deployment, {"tiny@2": "starting"})
    with pytest.raises(ServerError, match="tiny@2 does not start"):
        serve()
    assert told.log[-1] == "tiny stopped"


def test_when_all_have_failed_for_good_the_command_fails(deployment, monkeypatch):
    fails = {"tiny": "serving", "tiny@2": "serving"}
    said = []
    _, serve = supervised(monkeypatch, deployment, fails, said)
    with pytest.raises(ServerError, match="fails too often"):
        serve()
    assert "tiny: tiny fails too often" in said


def test_all_are_stopped_whoever_started_them(deployment, monkeypatch):
    stopped = []
    for number in (1, 2):
        write(deployment.replica(number))
    monkeypatch.setattr(
        replicas, "stop_server", lambda each: stopped.append(each.server_name) or each.number == 1
    )
    assert stop_replicas(deployment)
    assert stopped == ["tiny", "tiny@2"]
