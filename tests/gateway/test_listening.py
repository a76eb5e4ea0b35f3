"""A gateway says that it serves when clients can connect, not before."""

import asyncio
import socket

from tts.gateway.server import _until_listening


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
