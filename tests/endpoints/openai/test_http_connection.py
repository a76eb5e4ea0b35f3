"""How answers come on a connection, and which connections are used again."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tts.build.errors import EndpointUnavailable
from tts.endpoints.openai.http_client import Http

OK = b"HTTP/1.1 200 OK\r\n"
SIZED = OK + b"Content-Length: 7\r\n\r\n"


@asynccontextmanager
async def answering(parts, ends):
    """A server that answers every request with these bytes, and may end the connection then."""
    connections = []

    async def serve(reader, writer):
        connections.append(writer)
        while await reader.readuntil(b"{}"):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
            if ends:
                writer.close()
                return

    async def served(reader, writer):
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    http = Http(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", None, 0)
    try:
        yield http, connections
    finally:
        await http.aclose()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("parts", "ends", "connections"),
    [
        ([SIZED + b'{"a":1}'], False, 1),
        ([SIZED[:20], SIZED[20:] + b'{"a"', b":1}"], False, 1),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n7\r\n", b'{"a":1}\r\n0\r\n\r\n'], False, 1),
        ([SIZED + b'{"a":1}'], True, 3),
        ([OK + b"Connection: close\r\nContent-Length: 7\r\n\r\n", b'{"a":1}'], False, 3),
        ([OK + b"\r\n", b'{"a":1}'], True, 3),
    ],
)
async def test_an_answer_may_come_in_any_form_and_a_connection_is_used_as_long_as_it_lasts(
    parts, ends, connections
):
    async with answering(parts, ends) as (http, opened):
        for _ in range(3):
            assert await http.post("/x", {}) == {"a": 1}
            await asyncio.sleep(0.01 if ends else 0)
        assert len(opened) == connections


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([], "closed a connection"),
        ([OK], "closed a connection"),
        ([b"no HTTP\r\n\r\n"], "closed a connection"),
        ([SIZED + b'{"a"'], "broke an answer off"),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\n{}"], "broke an answer off"),
    ],
)
async def test_half_an_answer_is_none(parts, words):
    async with answering(parts, ends=True) as (http, _):
        with pytest.raises(EndpointUnavailable, match=words):
            await http.post("/x", {})


async def test_a_request_that_is_given_up_ends_its_connection():
    async with answering([SIZED], ends=False) as (http, opened):
        asking = asyncio.create_task(http.post("/x", {}))
        await asyncio.sleep(0.02)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(opened[0].wait_closed(), 5)
