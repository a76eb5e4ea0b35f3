"""The server that a gateway starts for itself: what it says, and how it ends."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from tts.build.errors import ServerError
from tts.gateway import local_servers as module
from tts.gateway.local_servers import local_servers
from tts.serving.server import supervise as supervise_module


@pytest.fixture
def engines(monkeypatch):
    """Engines that are built, no server of them, and a supervisor that does what a test wants."""
    scene = SimpleNamespace(
        found=None, several=[], stopped=threading.Event(), fail=threading.Event(), error=None
    )

    async def require_engines(deployment, addresses):
        return scene.several

    def supervise(deployment, *, say, on_ready, stop, **_):
        if scene.error:
            raise scene.error
        say("Ready")
        on_ready()
        while not stop.wait(0.001):
            if scene.fail.is_set():
                raise ServerError("It has failed too often.")
        scene.stopped.set()

    monkeypatch.setattr(module, "require_engines", require_engines)
    monkeypatch.setattr(module, "wait_for_server", lambda *_, **__: scene.found)
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    monkeypatch.setattr(supervise_module, "supervise", supervise)
    return scene


def opened(deployment, within=None):
    """What a gateway is told, and the lines that it says."""
    said = []

    async def go():
        async with local_servers(deployment, said.append, print) as local:
            if within:
                await within(local)
            return dict(local.groups), said

    return asyncio.run(asyncio.wait_for(go(), 20))


def test_without_any_server_one_is_started_and_stopped_in_the_end(tiny_deployment, engines):
    groups, said = opened(tiny_deployment)
    assert groups == {"tiny@1": ""}
    assert said == ["Ready"]
    assert engines.stopped.is_set()


def test_a_server_that_runs_is_used_and_left_running(tiny_deployment, engines):
    engines.found = SimpleNamespace(server=object())
    assert opened(tiny_deployment) == ({"tiny@1": ""}, [])
    address = SimpleNamespace(grpc="10.0.0.1:8001")
    engines.found = SimpleNamespace(server=None, addresses=address)
    assert opened(tiny_deployment) == ({"10.0.0.1:8001": ""}, [])
    engines.several = ["tiny@1", "tiny@2"]
    assert opened(tiny_deployment) == ({"tiny@1": "", "tiny@2": ""}, [])


def test_one_that_does_not_start_says_why(tiny_deployment, engines):
    engines.error = ServerError("There is no tritonserver.")
    with pytest.raises(ServerError, match="no tritonserver"):
        opened(tiny_deployment)


def test_one_that_has_failed_for_good_ends_the_gateway(tiny_deployment, engines):
    async def fails(local):
        engines.fail.set()
        await local.watch()

    with pytest.raises(ServerError, match="failed too often"):
        opened(tiny_deployment, fails)
