"""Which deployments are served, by the files that their servers keep."""

import os

from tts.build import paths
from tts.serving.command.ports import Addresses
from tts.serving.server.lookup import served_deployments
from tts.serving.server.state import STATE, Identity, ServerState, identify, write_state


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
