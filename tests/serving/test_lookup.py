"""Which deployments are served, by the files that their servers keep."""

import math
import os
import signal
import subprocess
import sys

import pytest

from tts.base import paths
from tts.serving.command import guard
from tts.serving.command.ports import Addresses
from tts.serving.repository.digest import deployment_digest
from tts.serving.server.lookup import served_deployments, stop_server, use_server
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
