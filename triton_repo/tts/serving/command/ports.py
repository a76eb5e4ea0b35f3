"""The addresses a server listens on: given ports are checked, free ones are found for "auto"."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from dataclasses import dataclass

import psutil

from tts.build.errors import ServerError
from tts.build.spec import Port, ServerSpec


@dataclass(frozen=True)
class Addresses:
    """The host a server binds and its three ports; 0 is a port that is not known."""

    host: str
    grpc_port: int
    http_port: int
    metrics_port: int

    @property
    def grpc(self) -> str:
        """`host:port` at which a client on this machine reaches gRPC."""
        return self._at(self.grpc_port)

    @property
    def http(self) -> str:
        """`host:port` at which a client on this machine reaches HTTP."""
        return self._at(self.http_port)

    @property
    def metrics(self) -> str:
        """`host:port` at which a client on this machine reads the Prometheus metrics."""
        return self._at(self.metrics_port)

    def _at(self, port: int) -> str:
        return address(self.host, port)


def address(host: str, port: int) -> str:
    """`host:port` for a client on this machine: loopback if the server listens everywhere."""
    return f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"


def choose_addresses(spec: ServerSpec) -> Addresses:
    """Given ports as they are, a free port for each "auto".

    Raises ServerError naming the port, its field and, where it can be seen, the process using it.
    """
    wanted: dict[str, Port] = {
        "grpc_port": spec.grpc_port,
        "http_port": spec.http_port,
        "metrics_port": spec.metrics_port,
    }
    with ExitStack() as held:  # all stay bound until the last is chosen, so that they differ
        # given ones first, or an auto port might take one of them
        order = sorted(wanted, key=lambda field: wanted[field] == "auto")
        ports = {
            field: held.enter_context(_bind(spec.host, field, wanted[field])) for field in order
        }
        numbers = {field: int(bound.getsockname()[1]) for field, bound in ports.items()}
    return Addresses(spec.host, **numbers)


def _bind(host: str, field: str, port: Port) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)  # Triton listens on IPv4 only
    try:
        if port != "auto":  # like Triton, take a port with connections in TIME_WAIT as free
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, 0 if port == "auto" else port))
    except OSError as error:
        bound.close()
        no_address = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        if no_address or port == "auto":
            raise _no_address(host, error) from error
        raise _cannot_open(field, port, error) from error
    return bound


def _no_address(host: str, error: OSError) -> ServerError:
    return ServerError(
        f"server.host is {host!r}, which is not an IPv4 address of this machine: {error.strerror}.",
        hint="Use 127.0.0.1, which only this machine can reach.",
    )


def _cannot_open(field: str, port: int, error: OSError) -> ServerError:
    where = f"Port {port} (server.{field})"
    if error.errno != errno.EADDRINUSE:
        return ServerError(f"{where} cannot be opened: {error.strerror}.")
    owner = port_owner(port)
    return ServerError(
        f"{where} is in use{f' by {owner}' if owner else ''}.",
        hint="Stop that process, choose another port, or write `auto` for a free one.",
    )


def port_owner(port: int) -> str | None:
    """`PID n (name)` of the process listening on a port, if this user may see it."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,)
            if listens and connection.pid:
                return f"PID {connection.pid} ({psutil.Process(connection.pid).name()})"
    except psutil.Error:
        pass
    return None
