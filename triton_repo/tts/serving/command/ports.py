"""The addresses a server listens on.

gRPC is a Unix domain socket in a folder that only this user may enter, unless the deployment says
a port or a host that others can reach. So whose process may talk to the engines is the kernel's
decision, not Triton's, which any client with a port to connect to could end
(docs/explanation/security.md).
"""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import os
import secrets
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tts.base import paths
from tts.base.errors import ServerError
from tts.base.user_paths import is_own
from tts.build.spec import Port, ServerSpec

SOCKET_BYTES = 107
"""Longest path of a Unix domain socket, unix(7)."""
_SOCKET = "grpc"
_SOCKET_PORT = 1  # Triton writes `:PORT` behind every address; it becomes part of the file's name


@dataclass(frozen=True)
class Addresses:
    """The host a server binds and its three ports; 0 is one that is closed or not known."""

    host: str
    grpc_port: int
    http_port: int
    metrics_port: int
    socket: str = ""
    """Path of the Unix domain socket of gRPC; empty if it listens at `grpc_port`."""
    api_key: str = field(default="", repr=False)
    """The key that the server wants with each HTTP request, if any."""

    def __str__(self) -> str:
        """For people."""
        return self.grpc if self.socket or self.grpc_port else self.url

    @property
    def grpc(self) -> str:
        """`unix:path` or `host:port`, at which a client on this machine reaches gRPC."""
        return f"unix:{self.socket}" if self.socket else address(self.host, self.grpc_port)

    @property
    def grpc_arguments(self) -> tuple[str, int]:
        """The address and the port to tell Triton, which joins them by a colon."""
        if self.socket:
            return f"unix:{self.socket.removesuffix(f':{_SOCKET_PORT}')}", _SOCKET_PORT
        return self.host, self.grpc_port

    @property
    def url(self) -> str:
        """The URL of HTTP, for a client on this machine."""
        return f"http://{address(self.host, self.http_port)}"

    @property
    def metrics(self) -> str:
        """`host:port` at which a client on this machine reads the Prometheus metrics."""
        return address(self.host, self.metrics_port)


def address(host: str, port: int) -> str:
    """`host:port` for a client on this machine: loopback if the server listens everywhere."""
    return f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a host: an address, or a name for addresses."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None, socket.AF_INET)}
    except OSError:
        return False
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


def socket_path(name: str) -> Path:
    """The Unix domain socket of a deployment's server, the same for every start.

    It is in a folder of its own in XDG_RUNTIME_DIR, or in /tmp where that is not set. Another user
    may already have made that folder: then the socket is beside the server's files or, if that path
    is too long, in a new folder of /tmp.
    """
    # short, as a socket's path must be; other homes hold deployments of the same name
    own = hashlib.sha256(str(paths.server_dir(name)).encode()).hexdigest()[:12]
    place = Path(own) / f"{_SOCKET}:{_SOCKET_PORT}"
    shared = f"/tmp/tts-{os.getuid()}"
    folders = [Path(shared), paths.server_dir(name)]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        folders.insert(0, Path(runtime) / "tts")
    for folder in folders:
        path = folder / place
        if is_own(folder) and len(os.fsencode(path)) <= SOCKET_BYTES:
            return path
    return Path(f"{shared}-{secrets.token_hex(8)}") / place


def choose_addresses(spec: ServerSpec, grpc_socket: Path) -> Addresses:
    """Given ports as they are, a free port for each "auto"; gRPC's "auto" is the socket.

    It is a port all the same if the deployment's host is one that others can reach. Raises
    ServerError naming the port, its field and, where it can be seen, the process using it.
    """
    choices: dict[str, Port] = {"metrics_port": spec.metrics_port}
    if spec.http_port != "off":
        choices["http_port"] = spec.http_port
    private = spec.grpc_port == "auto" and is_loopback(spec.host)
    if not private:
        choices["grpc_port"] = spec.grpc_port
    with ExitStack() as sockets:  # all stay bound until the last is chosen, so that they differ
        # given ones first, or an auto port might take one of them
        order = sorted(choices, key=lambda field: choices[field] == "auto")
        ports = {
            field: sockets.enter_context(_bind(spec.host, f"server.{field}", choices[field]))
            for field in order
        }
        numbers = {field: int(bound.getsockname()[1]) for field, bound in ports.items()}
    return Addresses(
        spec.host,
        numbers.get("grpc_port", 0),
        numbers.get("http_port", 0),
        numbers["metrics_port"],
        str(grpc_socket) if private else "",
    )


def choose_port(host: str, field: str, port: Port) -> int:
    """A given port as it is, or a free one for "auto"; raises ServerError naming `field`."""
    with _bind(host, field, port) as bound:
        return int(bound.getsockname()[1])


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
    where = f"Port {port} ({field})"
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


def listens(pid: int, addresses: Addresses) -> bool:
    """Whether a process, or one that it started, listens on every TCP port of these addresses.

    True as well where this user may not see what it has open.
    """
    ports = {addresses.grpc_port, addresses.http_port, addresses.metrics_port} - {0}
    try:
        process = psutil.Process(pid)
        connections = [
            connection
            for each in (process, *process.children(recursive=True))
            for connection in each.net_connections(kind="tcp")
        ]
    except psutil.AccessDenied:
        return True
    except psutil.Error:  # one of them has just ended
        return False
    listening = (each for each in connections if each.laddr and each.status == psutil.CONN_LISTEN)
    return ports <= {each.laddr.port for each in listening}
