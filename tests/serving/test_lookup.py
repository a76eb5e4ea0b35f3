"""Which deployments are served, by the files that their servers keep."""

import os

import pytest

from tts.build import paths
from tts.serving.command.ports import Addresses
from tts.serving.server.lookup import served_deployments
from tts.serving.server.state import STATE, Identity, ServerState, identify, read_state, write_state


def test_the_deployments_that_are_served_are_those_whose_server_lives(tmp_path, monkeypatch):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    assert served_deployments() == []
    me = identify(os.getpid())
    gone = Identity(me.pid, me.started_ticks + 1)
    for name, server in {"b": me, "dead": gone, "a": me}.items():
        paths.server_dir(name).mkdir(parents=True)
        state = ServerState(name, "digest", Addresses("127.0.0.1", 1, 2, 3), server)
        write_state(paths.server_dir(name) / STATE, state)
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
        b'{"deployment": "demo", "digest": "x", "shm_prefix": 5, "addresses": '
        b'{"host": "", "grpc_port": 0, "http_port": 0, "metrics_port": 0}}',
    ],
    ids=["empty", "no UTF-8", "deep", "a list", "no addresses", "no texts", "a number"],
)
def test_a_damaged_state_is_that_of_no_server(tmp_path, content):
    file = tmp_path / STATE
    file.write_bytes(content)
    assert read_state(file) is None
    assert not file.exists()
