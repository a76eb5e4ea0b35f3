"""Starting, watching and stopping the real tritonserver on models that only echo."""

import pytest

from tts.serving.server import find_server, start_server, stop_server

pytestmark = pytest.mark.server


def test_a_started_server_answers_and_leaves_nothing_behind(echo):
    deployment = echo()
    lines = []
    with start_server(deployment, say=lines.append) as server:
        server.check()
        assert find_server(deployment) == server.state
        assert sorted(server.health.stubs.values()) == ["generator", "prm"]
    assert find_server(deployment) is None
    assert not stop_server(deployment)
