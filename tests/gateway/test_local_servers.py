"""The server that a gateway starts for itself: what it says, and how it ends."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from tts.build.errors import ServerError
from tts.gateway import http_server as module
from tts.gateway.http_server import Upstreams, _servers
from tts.serving.server import supervise as supervise_module
from tts.session import server as server_module


@pytest.fixture
def engines(monkeypatch):
    """Engines that are built, no server of them, and a supervisor that does what a test wants."""
    scene = SimpleNamespace(found=None, stopped=threading.Event(), left=threading.Event())
    scene.fail, scene.error = threading.Event(), None

    def supervise(deployment, *, say, on_ready, stop, **_):
        if scene.error:
            raise scene.error
        say("Ready")
        on_ready()
        while not stop.wait(0.001):
            if scene.fail.is_set():
                raise ServerError("It has failed too often.")
        scene.stopped.set()

    monkeypatch.setattr(module, "require_engines", lambda deployment, addresses, say: None)
    found = SimpleNamespace(addresses=SimpleNamespace(grpc="unix:/own"))
    health = SimpleNamespace(check_from_outside=lambda: None)
    used = lambda: scene.found and (scene.found, scene.left.set)  # noqa: E731
    monkeypatch.setattr(server_module, "wait_for_server", lambda *_, **__: used())
    monkeypatch.setattr(server_module, "find_server", lambda deployment: found)
    monkeypatch.setattr(server_module, "LocalHealth", lambda deployment: health)
    monkeypatch.setattr(server_module, "steps_of", lambda *_, **__: None)
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    monkeypatch.setattr(supervise_module, "supervise", supervise)
    return scene


def opened(deployment, within=None):
    """What a gateway is told, and the lines that it says."""
    said = []

    async def go():
        async with _servers(deployment, Upstreams(), said.append, print) as (groups, watch):
            if within:
                await within(watch)
            return dict(groups), said

    return asyncio.run(asyncio.wait_for(go(), 20))


def test_without_any_server_one_is_started_and_stopped_in_the_end(tiny_deployment, engines):
    groups, said = opened(tiny_deployment)
    assert groups == {"tiny@local": ""}
    assert said == ["Ready"]
    assert engines.stopped.is_set()


def test_a_server_that_runs_is_used_and_left_running(tiny_deployment, engines):
    address = SimpleNamespace(grpc="10.0.0.1:8001")
    for process, name in ((object(), "tiny@local"), (None, "10.0.0.1:8001")):
        engines.found = SimpleNamespace(server=process, addresses=address)
        engines.left.clear()
        groups, said = opened(tiny_deployment)
        assert groups == {name: ""}
        assert len(said) == 1
        assert said[0].startswith("Using ")
        assert engines.left.is_set(), "its use has ended"
        assert not engines.stopped.is_set()


def test_one_that_does_not_start_says_why(tiny_deployment, engines):
    engines.error = ServerError("There is no tritonserver.")
    with pytest.raises(ServerError, match="no tritonserver"):
        opened(tiny_deployment)


def test_one_that_has_failed_for_good_ends_the_gateway(tiny_deployment, engines):
    async def fails(watch):
        engines.fail.set()
        await watch(None)

    with pytest.raises(ServerError, match="failed too often"):
        opened(tiny_deployment, fails)
