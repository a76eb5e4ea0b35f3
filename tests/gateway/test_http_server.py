"""A gateway serves when it says so, and waits for ever for nobody."""

import asyncio
import socket

import pytest

from tts.gateway import http_server
from tts.gateway.http_server import Listen, _server, _until_listening, _usable_port


def test_the_wait_ends_when_somebody_listens():
    async def go():
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        serving = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(_until_listening(serving, "127.0.0.1", port))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        server = await asyncio.start_server(
            lambda reader, writer: writer.close(), "127.0.0.1", port
        )
        async with server:
            await asyncio.wait_for(waiting, 30)

    asyncio.run(go())


def test_the_wait_ends_with_the_server():
    async def go():
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        serving = asyncio.get_running_loop().create_future()
        serving.set_result(None)
        await _until_listening(serving, "127.0.0.1", port)

    asyncio.run(go())


@pytest.mark.parametrize(
    "said",
    [b"", b"P", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\nhost: "],
    ids=["nothing", "a byte", "HTTP/2", "half a header"],
)
def test_a_connection_that_brings_no_request_is_closed(said, monkeypatch):
    monkeypatch.setattr(http_server, "HEADERS_TIMEOUT_MS", 200)

    async def app(scope, receive, send):
        raise AssertionError("there was no request")

    async def go():
        listen = Listen(port=0)
        port = _usable_port(listen)
        serves = _server(app, listen, port)
        serving = asyncio.ensure_future(serves.serve())
        await _until_listening(serving, listen.host, port)
        reader, writer = await asyncio.open_connection(listen.host, port)
        writer.write(said)
        await asyncio.wait_for(reader.read(), 60)  # to the connection's end
        writer.close()
        serves.stop()
        await asyncio.wait({serving})

    asyncio.run(go())
