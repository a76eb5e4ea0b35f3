"""The servers of a gateway: those that are named, which are followed, else that of this machine."""

import asyncio
import socket
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.base.errors import ConfigError, EndpointUnavailable, ServerError
from tts.fleet.replicas import EnginePair, Replicas
from tts.gateway import http_server as module
from tts.gateway import named_servers
from tts.gateway.http_server import Upstreams, _servers
from tts.gateway.named_servers import (
    NamedServers,
    follow,
    is_well_formed,
    read_replicas,
    resolve,
)

PODS = "dns:pods.here:8001"


class Resolver:
    """Gives the addresses that a test wants, or fails."""

    def __init__(self, addresses=()):
        self.addresses = addresses
        self.asked = []

    async def __call__(self, host, port):
        self.asked.append((host, port))
        if not self.addresses:
            raise socket.gaierror("no such name")
        return [f"{address}:{port}" for address in self.addresses]


@pytest.fixture
def at_once(monkeypatch):
    """Names are resolved, and replicas looked at, all the time."""
    monkeypatch.setattr(named_servers, "RESOLVE_S", 0.0)
    monkeypatch.setattr(named_servers, "LOOK_S", 0.002)
    monkeypatch.setattr(named_servers, "RETRY_S", 0.002)


def named(resolver, *servers, said=None):
    return NamedServers(servers, None, print if said is None else said.append, resolver)


def test_a_name_is_every_address_that_it_resolves_to_in_its_group(tmp_path):
    (tmp_path / "servers").write_text(f"# ours\na:1\n\n{PODS} throughput  # many\n")
    resolver = Resolver(["10.0.0.1", "10.0.0.2"])
    found = asyncio.run(NamedServers((), tmp_path / "servers", print, resolver).now())
    assert found == {"a:1": "", "10.0.0.1:8001": "throughput", "10.0.0.2:8001": "throughput"}
    assert resolver.asked == [("pods.here", 8001)]


def test_a_name_is_not_resolved_again_before_its_time():
    resolver = Resolver(["10.0.0.1"])

    async def go():
        found = named(resolver, PODS)
        return [await found.now() for _ in range(3)]

    assert asyncio.run(go()) == [{"10.0.0.1:8001": ""}] * 3
    assert len(resolver.asked) == 1


@given(st.lists(st.sets(st.integers(1, 4)), min_size=1))
def test_while_a_name_does_not_resolve_what_was_found_last_stands(answers):
    resolver, said = Resolver(), []

    async def go():
        found = named(resolver, PODS, said=said)
        last = {}
        for answer in answers:
            found._tried.clear()
            resolver.addresses = [f"10.0.0.{number}" for number in sorted(answer)]
            last = {f"{address}:8001": "" for address in resolver.addresses} or last
            assert await found.now() == last

    asyncio.run(go())
    failures = [not answer for answer in answers]
    outages = sum(now and not before for before, now in pairwise([False, *failures]))
    assert len(said) == outages


def test_the_systems_resolver_finds_this_machine_by_its_name():
    (address,) = asyncio.run(resolve("localhost", 8001))
    assert address in ("127.0.0.1:8001", "[::1]:8001")
    with pytest.raises((OSError, UnicodeError)):
        asyncio.run(resolve(f"{'x' * 64}.invalid", 8001))  # no label is that long


def test_of_two_families_one_is_used(monkeypatch):
    def both(*_, **__):
        v4 = [(socket.AF_INET, 0, 0, "", (f"10.0.0.{n}", 8001)) for n in (2, 1, 2)]
        return [(socket.AF_INET6, 0, 0, "", ("fd00::1", 8001, 0, 0)), *v4]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    assert asyncio.run(resolve("pods", 8001)) == ["10.0.0.1:8001", "10.0.0.2:8001"]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both()[:1])
    assert asyncio.run(resolve("pods", 8001)) == ["[fd00::1]:8001"]


@pytest.mark.parametrize("wrong", ["dns:", "dns:pods", "dns:pods:", "dns::1", "dns:a b:1"])
def test_what_is_no_name_is_refused(wrong):
    assert not is_well_formed(wrong)
    with pytest.raises(ConfigError, match="no name of servers"):
        NamedServers([wrong], None, print)


def test_a_gateway_begins_when_the_first_server_of_a_name_serves_its_deployment(at_once):
    resolver, said, asked = Resolver(), [], []

    async def serves(address):
        asked.append(address)
        resolver.addresses = ["old", "new"]  # it is found one after the other
        return address == "new:8001"

    async def first(servers):
        told = named(resolver, *servers, said=said)
        finding = asyncio.ensure_future(told.at_first(serves))
        while servers == [PODS] and len(resolver.asked) < 4:  # it goes on, and says so once
            await asyncio.sleep(0)
        resolver.addresses = ["old"]
        return await asyncio.wait_for(finding, 20)

    assert asyncio.run(first([PODS])) == {"new:8001": ""}
    assert said == [f"{PODS} does not resolve now: no such name", f"Waiting for a server at {PODS}"]
    assert asked == ["old:8001", "old:8001", "new:8001"]
    # what is named by its address need not answer yet
    assert asyncio.run(first(["a:1", PODS])) == {"a:1": ""}


@pytest.fixture
def following(at_once):
    """Runs a scene with replicas that follow what is told; its lines."""

    def followed(scene, told, answering):
        async def connect(address):
            if address not in answering:
                raise EndpointUnavailable(f"No server answers at {address}.")
            return EnginePair(address, None, None)

        async def serves(address):
            return address in answering

        async def until(replicas, *used):
            while {pair.name for pair in replicas.pairs} != set(used):
                await asyncio.sleep(0.002)

        async def run():
            said = []
            async with Replicas(connect) as replicas:
                servers = told(said.append)
                for name in await servers.at_first(serves):
                    replicas.use(await connect(name))
                task = asyncio.ensure_future(follow(servers, replicas, said.append))
                await asyncio.wait_for(scene(replicas, partial(until, replicas), said), 20)
                task.cancel()
            return said

        return asyncio.run(run())

    return followed


def test_replicas_follow_a_name_and_what_has_gone_is_drained(following):
    resolver, answering = Resolver(["a"]), {"a:8001", "b:8001"}

    async def scene(replicas, until, said):
        resolver.addresses = ["a", "b", "c"]
        await until("a:8001", "b:8001")  # c does not answer yet
        async with replicas.lease() as pair:
            resolver.addresses = [each for each in "bc" if f"{each}:8001" != pair.name]
            while not replicas.router[pair.name].draining:
                await asyncio.sleep(0.002)
            resolver.addresses = []  # the resolver fails: nothing changes
            await asyncio.sleep(0.01)
            assert replicas.router[pair.name].draining
            resolver.addresses = ["a", "b", "c"]  # it is back before it is gone
            while replicas.router[pair.name].draining:
                await asyncio.sleep(0.002)
        answering.add("c:8001")
        await until("a:8001", "b:8001", "c:8001")
        resolver.addresses = ["c"]
        await until("c:8001")

    said = following(scene, lambda say: NamedServers([PODS], None, say, resolver), answering)
    assert sum("c:8001 is not used yet" in line for line in said) == 1
    assert sum("does not resolve now" in line for line in said) == 1


def test_replicas_follow_the_file(following, tmp_path):
    file, answering = tmp_path / "servers", {"a", "b"}

    def write(text):
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(file)

    async def scene(replicas, until, said):
        write("a\nb latency\n")
        await until("a", "b")
        assert replicas.router["b"].group == "latency"
        write("b latency\nc\n")
        await until("b")  # c does not answer yet
        write("nonsense of four words\n")
        while not any("nonsense" in line for line in said):
            await asyncio.sleep(0.002)
        answering.add("c")
        write("b latency\nc\n")
        await until("b", "c")

    write("a\n")
    following(scene, lambda say: NamedServers((), file, say), answering)


@pytest.mark.parametrize("text", ["", "# none\n", "a b c\n", "a\na group\n", "dns:a\n"])
def test_what_is_no_such_file_is_refused(tmp_path, text):
    file = tmp_path / "servers"
    file.write_text(text)
    with pytest.raises(ConfigError, match=str(file)):
        read_replicas(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_replicas(tmp_path / "nowhere")


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
