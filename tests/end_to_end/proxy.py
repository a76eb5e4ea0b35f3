"""A TCP port in front of a server's Unix domain socket, whose connections can be cut."""

import socket
import struct
import threading
import time
from contextlib import suppress

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of no time: closing sends RST, see socket(7)."""


class Proxy:
    """Passes connections to a port of loopback on to a socket, each in two threads."""

    def __init__(self, target):
        self._target = str(target)
        self._links, self._away = {}, threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def cut(self, away_s):
        """Reset all connections, and those that are made in the next seconds."""
        self._away.set()
        for client in list(self._links):
            reset(client)
        time.sleep(away_s)
        self._away.clear()

    def close(self):
        """End the port, all connections and their threads."""
        with self._listening:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._thread.join()
        for client, link in self._links.items():
            reset(client)
            link.join()

    def _accept(self):
        with suppress(OSError):  # shut down
            while True:
                client, _ = self._listening.accept()
                link = threading.Thread(target=self._link, args=(client,))
                self._links[client] = link
                link.start()

    def _link(self, client):
        with client, socket.socket(socket.AF_UNIX) as server:
            if self._away.is_set() or server.connect_ex(self._target):
                return reset(client)
            back = threading.Thread(target=pass_on, args=(server, client))
            back.start()
            pass_on(client, server)
            back.join()


def pass_on(source, sink):
    """All that comes, until either end is gone; then neither is read any more."""
    with suppress(OSError):
        while data := source.recv(2**16):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RD)


def reset(connection):
    """Let a connection end by RST, in the thread that closes it."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.shutdown(socket.SHUT_RD)
