"""The replicas follow the file of servers."""

import asyncio

from tts.build.errors import EndpointUnavailable
from tts.gateway import named_servers
from tts.gateway.named_servers import NamedServers, follow
from tts.session.replicas import EnginePair, Replicas


def test_replicas_follow_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(named_servers, "LOOK_S", 0.005)
    monkeypatch.setattr(named_servers, "RETRY_S", 0.005)
    file, said, answering = tmp_path / "servers", [], {"a", "b"}

    async def connect(address):
        if address not in answering:
            raise EndpointUnavailable(f"No server answers at {address}.")
        return EnginePair(address, None, None)

    def write(text):
        new = tmp_path / "new"
        new.write_text(text)
        new.replace(file)

    async def until(names):
        while {pair.name for pair in replicas.pairs} != names:
            await asyncio.sleep(0.005)

    async def scene():
        told = NamedServers((), file, said.append)
        task = asyncio.ensure_future(follow(told, replicas, said.append))
        await asyncio.sleep(0)
        write("a\nb latency\n")
        await until({"a", "b"})
        assert replicas.router["b"].group == "latency"
        write("b latency\nc\n")
        await until({"b"})  # c does not answer yet
        write("nonsense of four words\n")
        while not any("nonsense" in line for line in said):
            await asyncio.sleep(0.005)
        answering.add("c")
        write("b latency\nc\n")
        await until({"b", "c"})
        task.cancel()

    async def run():
        nonlocal replicas
        async with Replicas(connect) as replicas:
            replicas.use(EnginePair("a", None, None))
            await asyncio.wait_for(scene(), 20)

    replicas = None
    write("a\n")
    asyncio.run(run())


def test_a_gateway_begins_with_the_servers_that_the_file_names(tmp_path):
    file = tmp_path / "servers"
    file.write_text("a:1\nb:2 latency\n")
    told = NamedServers((), file, print)
    assert asyncio.run(told.now()) == {"a:1": "", "b:2": "latency"}
