"""The servers of a gateway: those that are named, else that of this machine, to its end."""

import asyncio

import pytest

from tts.base.errors import ConfigError, ServerError
from tts.gateway import http_server as module
from tts.gateway.http_server import Upstreams, _servers


class Local:
    """The server of this machine, as a gateway finds or starts it."""

    name = "tiny@local"

    def __init__(self, started):
        self.started, self.ours = started, True
        self.stopped, self.failure = 0, None

    def check(self):
        if self.failure:
            raise self.failure

    def stop(self):
        self.stopped += 1


@pytest.fixture
def opened(tiny_deployment, monkeypatch):
    """The servers' groups, after work with what looks after them."""

    def groups_of(local=None, upstreams=None, work=None, **changes):
        async def open_server(deployment, say, on_loading, *, lasting):
            assert lasting
            return local

        monkeypatch.setattr(module, "open_server", open_server)
        monkeypatch.setattr(module, "require_engines", lambda deployment, addresses, say: None)
        monkeypatch.setattr(module, "serves", lambda deployment, address: False)
        monkeypatch.setattr(module, "LOOK_S", 0.001)
        deployment = tiny_deployment.model_copy(update=changes)

        async def go():
            servers = _servers(deployment, upstreams or Upstreams(), print, print)
            async with servers as (groups, watch):
                assert not (local and local.stopped)
                if work:
                    await work(watch)
                return dict(groups)

        return asyncio.run(asyncio.wait_for(go(), 20))

    return groups_of


@pytest.mark.parametrize("started", [True, False])
def test_without_any_name_the_server_of_this_machine_is_used_and_let_go(opened, started):
    local = Local(started)
    assert opened(local) == {"tiny@local": ""}
    assert local.stopped == 1


@pytest.mark.parametrize("started", [True, False])
def test_one_of_the_gateways_own_that_has_failed_for_good_ends_it(opened, started):
    local = Local(started)

    async def fails(watch):
        local.failure = ServerError("It has failed too often.")
        await asyncio.wait_for(watch(None), 0.1)

    with pytest.raises(ServerError if started else TimeoutError):
        opened(local, work=fails)
    assert local.stopped == 1


def test_servers_that_are_named_are_used_instead(opened, tmp_path):
    (tmp_path / "servers").write_text("c:1 latency\n")
    assert opened(upstreams=Upstreams(("a:1", "b:1"))) == {"a:1": "", "b:1": ""}
    assert opened(upstreams=Upstreams(file=tmp_path / "servers")) == {"c:1": "latency"}
    assert opened(endpoints=("d:1",)) == {"d:1": ""}
    with pytest.raises(ConfigError, match="not by both"):
        opened(upstreams=Upstreams(("a:1",), tmp_path / "servers"))
