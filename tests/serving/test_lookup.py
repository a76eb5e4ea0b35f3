"""Which deployments are served, which death is noticed, and what users of a server are told."""

import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.serving.conftest import make_deployment

from tts.base import paths
from tts.base.errors import ServerError
from tts.serving.command import guard
from tts.serving.command.environment import STUB
from tts.serving.command.ports import Addresses
from tts.serving.repository.digest import deployment_digest
from tts.serving.server.lookup import (
    LocalHealth,
    observe,
    served_deployments,
    stop_server,
    use_server,
)
from tts.serving.server.state import (
    ProcessIdentity,
    ServerState,
    identify,
    read_state,
    write_state,
)
from tts.serving.server.triton import Triton


def test_the_deployments_that_are_served_are_those_whose_server_lives(tmp_path, monkeypatch):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    assert served_deployments() == []
    me = identify(os.getpid())
    gone = ProcessIdentity(me.pid, me.started_ticks + 1)
    for name, server in {"b": me, "dead": gone, "a": me}.items():
        paths.server_dir(name).mkdir(parents=True)
        state = ServerState(name, "digest", Addresses("127.0.0.1", 1, 2, 3), server)
        write_state(paths.server_dir(name) / guard.STATE, state)
    assert served_deployments() == ["a", "b"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b'{"deployment": "demo", "digest": "x"}',
        b'{"deployment": 1, "digest": "x", "addresses": {}}',
        b'{"deployment": "demo", "digest": "x", "mark": 5, "addresses": '
        b'{"host": "", "grpc_port": 0, "http_port": 0, "metrics_port": 0}}',
    ],
    ids=["empty", "no UTF-8", "deep", "a list", "no addresses", "no texts", "a number"],
)
def test_a_damaged_state_is_that_of_no_server(tmp_path, content):
    file = tmp_path / guard.STATE
    file.write_bytes(content)
    assert read_state(file) is None
    assert not file.exists()


@pytest.fixture
def process():
    """A process that can be asked to stop, as a server's guard."""
    code = "print(flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        yield process
        process.kill()


@pytest.fixture
def served(echo, process, monkeypatch):
    """Makes that process the server of a deployment, and its guard."""
    monkeypatch.setattr(guard, "LONGEST_STOP_S", math.inf)  # its end is waited for

    def serve(**known):
        deployment, it = echo(), identify(process.pid)
        where, digest = Addresses("127.0.0.1", 1, 2, 3), deployment_digest(deployment)
        paths.server_dir("echo").mkdir(parents=True)
        state = ServerState("echo", digest, where, it, it, **known)
        write_state(paths.server_dir("echo") / guard.STATE, state)
        return deployment

    return serve


def test_a_server_that_is_stopped_has_ended(served, process):
    deployment = served()
    assert stop_server(Triton(deployment))
    assert process.wait() == -signal.SIGTERM
    assert served_deployments() == []
    assert not stop_server(Triton(deployment))


def test_the_last_user_of_a_shared_server_stops_it(served, process):
    deployment = served(shared=True)
    first, leave = use_server(Triton(deployment))
    again, leave_too = use_server(Triton(deployment))
    assert first == again
    leave()
    assert process.poll() is None
    leave_too()
    assert process.wait() == -signal.SIGTERM
    assert use_server(Triton(deployment)) is None


def test_a_server_of_another_process_is_used_and_left_as_it_is(served, process):
    _, leave = use_server(Triton(served()))
    leave()
    assert process.poll() is None


ME = identify(os.getpid())
GONE = ProcessIdentity(ME.pid, ME.started_ticks + 1)
ECHO = Triton(make_deployment())
STATE = ServerState("echo", "digest", Addresses("127.0.0.1", 1, 2, 3), ME)


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[psutil.Process]:
    """A child that is called as the stub of model prm is, under a server that is this process."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    model = tmp_path / "repository" / "prm" / "1" / "model.py"
    model.parent.mkdir(parents=True)
    model.write_text("print(flush=True)\ninput()\n")
    words = [f"{tmp_path}/{STUB}", str(model), "shm"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, executable=sys.executable, stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        yield psutil.Process(process.pid)
        process.kill()


def test_a_stub_that_dies_is_named_by_its_model(stub: psutil.Process):
    health = observe(ECHO, STATE)
    # this process may have a real server, too
    assert health.parts[identify(stub.pid)] == "Python stub of model prm"
    health.check()
    stub.send_signal(signal.SIGKILL)
    stub.wait()
    with pytest.raises(ServerError) as died:
        health.check()
    assert died.value.message.startswith(f"The Python stub of model prm (PID {stub.pid}) ")
    assert died.value.message.endswith("cannot answer any more.")
    assert died.value.hint == "Start the server again."


@pytest.fixture
def dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerState:
    """A server that has died."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    return replace(STATE, server=GONE)


@pytest.mark.parametrize(("shared", "whose"), [(False, "another process"), (True, "is gone")])
def test_who_uses_a_server_is_told_whose_it_was_and_what_to_do(
    dead: ServerState, shared: bool, whose: str
):
    with pytest.raises(ServerError, match="The Triton server died") as died:
        observe(ECHO, replace(dead, shared=shared)).check_from_outside()
    owner, _, _ = died.value.hint.partition("One that stays for all: tts serve echo\nIts log: ")
    assert whose in owner


def test_a_death_is_left_to_a_supervisor_that_lives(dead: ServerState):
    observe(ECHO, replace(dead, supervisor=ME)).check_from_outside()
    with pytest.raises(ServerError) as died:
        observe(ECHO, replace(dead, supervisor=GONE)).check_from_outside()
    assert "tts serve" not in died.value.hint


def test_a_server_is_watched_through_its_restarts(tiny_deployment, tmp_path, monkeypatch):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    with pytest.raises(ServerError, match="No server of tiny is running"):
        LocalHealth(Triton(tiny_deployment))
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    paths.server_dir("tiny").mkdir(parents=True)
    write_state(Triton(tiny_deployment).state_file, replace(STATE, server=identify(process.pid)))
    health = LocalHealth(Triton(tiny_deployment))
    health.check()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        health.check()  # without a descriptor to look with it is taken to be as it was
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    process.communicate(b"\n")
    with pytest.raises(ServerError, match=r"The Triton server died\."):
        health.check()
    write_state(Triton(tiny_deployment).state_file, STATE)
    health.check()
    assert health.addresses.grpc == "127.0.0.1:1"
