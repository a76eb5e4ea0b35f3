"""Connections that never say anything are ended; others, and those of others, are left alone."""

import socket
import sys
import time
from pathlib import Path

import pytest

from tts.gateway import connections
from tts.gateway.connections import most_connections, shut_down_silent

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux's kernel")


def pair(server):
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    return client, accepted


def is_open(client):
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True


@LINUX
def test_only_silent_connections_to_the_port_are_shut_down():
    with (
        socket.create_server(("127.0.0.1", 0)) as ours,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        silent, said_little, said_enough = pair(ours), pair(ours), pair(ours)
        elsewhere = pair(other)
        said_little[0].sendall(b"PO")
        said_enough[0].sendall(b"GET / HTTP/1.1\r\nhost: here\r\n")
        port = ours.getsockname()[1]
        assert shut_down_silent(port, 60) == 0
        deadline = time.monotonic() + 30  # the kernel's clock has ticks
        files = len(list(Path("/proc/self/fd").iterdir()))
        while any(is_open(client) for client, _ in (silent, said_little)):
            assert time.monotonic() < deadline
            shut_down_silent(port, 0.001)  # perhaps one now and the other the next time
        assert len(list(Path("/proc/self/fd").iterdir())) == files
        opened = [is_open(client) for client, _ in (silent, said_little, said_enough, elsewhere)]
        assert opened == [False, False, True, True]
        again = pair(ours)  # the socket that listens goes on
        for both in (silent, said_little, said_enough, elsewhere, again):
            for end in both:
                end.close()


def test_connections_leave_files_to_the_rest(monkeypatch):
    resource = pytest.importorskip("resource")
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    assert most_connections() == 4096 - 512
    limits.append((1 << 20, 1 << 20))
    assert most_connections() == connections.MOST
