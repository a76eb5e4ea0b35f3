"""The file of servers: what it says, and that the replicas follow it."""

import asyncio

import pytest

from tts.build.errors import ConfigError, EndpointUnavailable
from tts.gateway import following
from tts.gateway.following import ToldServers, follow
from tts.gateway.replicas_file import read_replicas
from tts.session.replicas import EnginePair, Replicas


def test_a_line_is_an_address_and_perhaps_a_group(tmp_path):
    file = tmp_path / "servers"
    file.write_text("# ours\n10.0.0.1:8001\n\n10.0.0.2:8001 throughput  # many\n")
    assert read_replicas(file) == {"10.0.0.1:8001": "", "10.0.0.2:8001": "throughput"}


@pytest.mark.parametrize("text", ["", "# none\n", "a b c\n", "a\na group\n", "dns:a\n"])
def test_what_is_no_such_file_is_refused(tmp_path, text):
    file = tmp_path / "servers"
    file.write_text(text)
    with pytest.raises(ConfigError, match=str(file)):
        read_replicas(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_replicas(tmp_path / "nowhere")


def test_replicas_follow_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "LOOK_S", 0.005)
    monkeypatch.setattr(following, "RETRY_S", 0.005)
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
        told = ToldServers((), file, said.append)
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
