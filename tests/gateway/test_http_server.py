"""A gateway serves when it says so, and waits for ever for nobody."""

import asyncio
import contextlib
import re
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tts.base.errors import ConfigError, ServerError
from tts.gateway import connections
from tts.gateway.connections import HttpServer
from tts.gateway.draining import Drain
from tts.gateway.exchange import ON_LEAVE
from tts.gateway.http_server import Listen, _check_tls, answer, bind
from tts.gateway.observability.recorder import Recorder

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def served(app, max_connections=100):
    """The address at which an application is served, with so many connections at most."""
    sockets = bind(Listen(port=0))
    server = HttpServer(app, None, max_connections)
    running = asyncio.ensure_future(server.serve(sockets))
    await asyncio.wait_for(server.listening.wait(), 30)
    yield sockets[0].getsockname()
    server.stop()
    await asyncio.wait_for(running, 30)


def test_a_port_is_held_from_the_start_but_nobody_is_let_in():
    (held,) = bind(Listen(port=0))
    with held, pytest.raises(ConnectionRefusedError):
        socket.create_connection(held.getsockname())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
            bind(Listen(port=port))
    with pytest.raises(ConfigError, match="two files"):
        _check_tls(Listen(port=0, key=Path("key.pem")))
    with pytest.raises(ConfigError, match=r"The TLS file none\.pem cannot be read: No such file"):
        _check_tls(Listen(port=0, certificate=Path("none.pem"), key=Path("key.pem")))


def test_all_addresses_of_a_name_are_listened_on_at_one_port(monkeypatch):
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, 0))
        for host in ("127.0.0.1", "127.0.0.2", "127.0.0.1")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    sockets = bind(Listen("a-name", 0))
    assert [each.getsockname()[0] for each in sockets] == ["127.0.0.1", "127.0.0.2"]
    assert len({each.getsockname()[1] for each in sockets}) == 1
    for each in sockets:
        each.close()


class Transport:
    """Keeps what is written to it, piece by piece."""

    def __init__(self):
        self.pieces, self.closed = [], False

    def write(self, data):
        self.pieces.append(data)

    def write_eof(self):
        self.pieces.append("eof")

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True


FULL = b"x" * connections.SEND_BUFFER


@pytest.mark.parametrize(
    ("writes", "then", "pieces"),
    [
        ([b"head", b"one", b"two"], "wait", [b"headonetwo"]),
        ([b"one", FULL, b"two", b"three"], "wait", [b"one" + FULL, b"twothree"]),
        ([b"one", b"two"], "close", [b"onetwo"]),
        ([b"one", b"two"], "write_eof", [b"onetwo", "eof"]),
        ([b"one"], "vanish", []),
    ],
)
async def test_what_is_written_in_one_turn_of_the_loop_goes_in_one_piece(writes, then, pieces):
    transport = Transport()
    cork = connections._Cork(transport, asyncio.get_running_loop())
    for data in writes:
        cork.write(data)
    if then in ("close", "write_eof"):
        getattr(cork, then)()
        assert transport.pieces == pieces
    transport.closed = then == "vanish"
    for _ in range(2):
        await asyncio.sleep(0)
        assert transport.pieces == pieces


@pytest.mark.parametrize("in_time", [True, False])
def test_a_gateway_serves_before_it_says_so_and_says_nothing_if_it_cannot(in_time):
    said, service = [], tiny()
    (own,) = bind(Listen(port=0))
    address = own.getsockname()

    def say(line):
        with socket.create_connection(address):
            said.append(line)

    async def served():
        raise EndError

    with contextlib.ExitStack() as stack:
        stack.enter_context(own)
        if not in_time:  # two that are bound, of which one can listen
            (other,) = map(stack.enter_context, bind(Listen(port=address[1])))
            other.listen()
        with pytest.raises(EndError if in_time else ConfigError):
            asyncio.run(answer(service, Listen(port=0), [own], say, served))
    line = f"Serving tiny at http://127.0.0.1:{address[1]}/v1 (Ctrl-C ends it)"
    assert said == [line] * in_time


def test_metrics_are_at_a_port_of_their_own_for_everyone():
    said, answered, service = [], [], tiny()
    listen = Listen(port=0, metrics=Listen(port=0))
    sockets, scraped = bind(listen), bind(listen.metrics)
    address = scraped[0].getsockname()
    service.recorder.end(service.recorder.begin("/ready"))

    async def scrape():
        request = b"GET /metrics HTTP/1.1\r\nhost: a-pod\r\nconnection: close\r\n\r\n"
        answered.append(await said_to(address, request))
        raise EndError

    with pytest.raises(EndError):
        asyncio.run(answer(service, listen, sockets, said.append, scrape, scraped))
    head, _, body = answered[0].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b'tts_gateway_requests_total{endpoint="/ready"' in body
    assert said[0] == f"Metrics at http://127.0.0.1:{address[1]}/metrics, without a key"


def tiny():
    """A service that has nothing to answer with."""
    service = SimpleNamespace(drain=Drain(0), deployment=SimpleNamespace(name="tiny"))
    service.services, service.recorder = [service], Recorder()
    service.session = SimpleNamespace(stop_searches=lambda: None)
    return service


class EndError(Exception):
    pass


async def said_to(address, *parts):
    """All that is answered to some bytes, to the connection's end."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return None
    finally:
        writer.close()


def test_uvicorn_has_what_is_overridden_and_one_without_is_refused(monkeypatch):
    assert callable(HttpToolsProtocol._start_asgi_task)
    monkeypatch.delattr(HttpToolsProtocol, "_start_asgi_task")
    with pytest.raises(ServerError, match="cannot serve the gateway") as refused:
        HttpServer(unasked, None, 1)
    (least,) = re.findall(r"uvicorn>=[\d.]+", Path("pyproject.toml").read_text())
    assert least in refused.value.hint


async def unasked(scope, receive, send):
    raise AssertionError("there was no request")


async def echo(scope, receive, send):
    """Answers with the path and the body, in two pieces."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode(), "more_body": True})
    await send({"type": "http.response.body", "body": body})


async def refuse(scope, receive, send):
    """Refuses a body without reading it, as one that is too large."""
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": b"no"})


LINE = b"x-long: " + b"y" * 1000 + b"\r\n"
GET, LARGE = (
    b"GET /one HTTP/1.1\r\nhost: a\r\n",
    b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n",
)
BODY = [b"x" * 80_000] * 100


@pytest.mark.parametrize(
    ("app", "parts", "status", "said"),
    [
        pytest.param(unasked, [b""], b"", b"", id="nothing"),
        pytest.param(unasked, [b"P"], b"", b"", id="a byte"),
        pytest.param(unasked, [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], b"400", b"", id="HTTP/2"),
        pytest.param(unasked, [GET, b"host: "], b"", b"", id="half a header"),
        pytest.param(unasked, [GET, LINE * 70, b"\r\n"], b"431", b"", id="long headers"),
        pytest.param(unasked, [GET, *[LINE] * 100], b"431", b"", id="headers for ever"),
        pytest.param(echo, [GET, b"\r\n"], b"200", b"/one", id="no other request"),
        pytest.param(unasked, [GET, b"host: b\r\n\r\n"], b"400", b"", id="two hosts"),
        pytest.param(unasked, [b"GET / HTTP/1.1\r\n\r\n"], b"400", b"", id="no host"),
        pytest.param(echo, [b"GET /old HTTP/1.0\r\n\r\n"], b"200", b"/old", id="HTTP/1.0"),
        pytest.param(
            refuse,
            [LARGE, b"content-length: 8000000\r\n\r\n", *BODY],
            b"413",
            b"no",
            id="long body",
        ),
        pytest.param(
            refuse,
            [LARGE, b"transfer-encoding: chunked\r\n\r\n%x\r\n" % 8_000_000, *BODY],
            b"413",
            b"no",
            id="long chunk",
        ),
    ],
)
async def test_a_connection_ends_and_its_client_gets_the_answer(
    app, parts, status, said, monkeypatch
):
    """What is refused does so though it is not read to its end."""
    monkeypatch.setattr(connections, "HEADERS_TIMEOUT_S", 0.5)

    async with served(app) as address:
        answer = await said_to(address, *parts)
        assert answer[:12] == (b"HTTP/1.1 " + status if status else b"")
        assert said in answer


async def test_what_follows_a_refused_body_is_read_for_a_while_only(monkeypatch):
    monkeypatch.setattr(connections, "LINGER_S", 0.2)

    async with served(refuse) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(
            b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 9\r\n\r\n"
        )
        assert (await asyncio.wait_for(reader.read(), 60)).endswith(b"no")
        for _ in range(1000):
            writer.write(b"x")
            await asyncio.sleep(0.01)
            if writer.transport.is_closing():  # it was reset
                return
        raise AssertionError("all was read")


@pytest.mark.parametrize("reads", [True, False], ids=["slowly", "never"])
async def test_a_client_that_takes_nothing_is_dropped_and_one_that_reads_slowly_is_not(
    reads, monkeypatch
):
    monkeypatch.setattr(connections, "UNREAD_TIMEOUT_S", 1.5)
    size, pieces, paths = 1 << 22, 3, asyncio.Queue()
    sent = []

    async def many(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for place in range(pieces):
            sent.append(place)
            more = place + 1 < pieces
            await send({"type": "http.response.body", "body": b"x" * size, "more_body": more})
        paths.put_nowait(scope["path"])

    async with served(many) as address:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            client.connect(address)
            client.sendall(b"GET /one HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            client.setblocking(False)
            came = 0
            receive = asyncio.get_running_loop().sock_recv
            while reads and (new := await receive(client, 1 << 18)):
                came += len(new)
                await asyncio.sleep(0.05)
            if not reads:
                await asyncio.sleep(0.1)
                assert len(sent) < pieces  # it waits, and piles nothing up
            assert await asyncio.wait_for(paths.get(), 60) == "/one"
            assert (came > size * pieces) is reads


async def test_requests_that_come_at_once_are_answered_in_order():
    async with served(echo) as address:
        asked = b"".join(
            b"POST /%d HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi" % number
            for number in range(2000)
        )
        last = b"GET /last HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        answer = await said_to(address, asked, last)
        paths = re.findall(rb"\r\n(/\w+)\r\n", answer)
        assert paths == [*(b"/%d" % number for number in range(2000)), b"/last"]


async def test_more_connections_than_allowed_are_closed_and_the_others_go_on():
    async with served(echo, max_connections=2) as address:
        kept = [await asyncio.open_connection(*address) for _ in range(2)]
        assert not await said_to(address)
        for reader, writer in kept:
            writer.write(b"GET /here HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            assert b"/here" in await asyncio.wait_for(reader.read(), 60)
            writer.close()


@pytest.mark.parametrize("after", [b"", b"\0\0"], ids=["nothing", "rubbish"])
async def test_a_request_ends_with_its_connection_and_writes_nothing_more(after):
    paths, leavers = asyncio.Queue(), []

    async def slow(scope, receive, send):
        scope["state"][ON_LEAVE] = lambda: leavers.append(scope["path"])
        while (message := await receive())["type"] != "http.disconnect":
            if not message["more_body"]:
                await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"too late"})
        paths.put_nowait(scope["path"])

    async with served(slow) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /one HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 200")
        writer.write(after)
        if not after:
            writer.write_eof()
        rest = await asyncio.wait_for(reader.read(), 60)
        assert b"too late" not in rest
        assert b"400" not in rest
        assert [await asyncio.wait_for(paths.get(), 60)] == leavers == ["/one"]
        writer.close()
