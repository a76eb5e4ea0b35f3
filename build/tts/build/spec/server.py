"""Section `server`, and the types of hosts, ports and endpoints."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator

from tts.base.choices import ServerKind

from .section import Section


def _port(value: object) -> object:
    if value != "auto" and (type(value) is not int or not 1 <= value <= 65535):
        raise ValueError("must be auto or a port number from 1 to 65535")
    return value


# One validator instead of a union's two, whose errors would name types that no user wrote.
Port = Annotated[int | Literal["auto"], BeforeValidator(_port)]
HttpPort = Annotated[
    int | Literal["auto", "off"],
    BeforeValidator(lambda value: "off" if value is False or value == "off" else _port(value)),
]
"""A port, or "off", which YAML reads as false."""

_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")


def _host(value: object) -> object:
    """An IPv4 address, as Triton listens on IPv4 only, or a host name (RFC 1123)."""
    if isinstance(value, str):
        try:
            ipaddress.IPv4Address(value)
        except ValueError:
            last = value.rpartition(".")[2]
            if len(value) > 253 or last.isdigit() or not _HOST_NAME.fullmatch(value):
                raise ValueError("must be an IPv4 address or a host name") from None
    return value


Host = Annotated[str, BeforeValidator(_host)]

ENDPOINT = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}|unix:/\S+"
"""Where gRPC listens: HOST:PORT, or a Unix domain socket."""


def _endpoint(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(ENDPOINT, value):
        return value
    raise ValueError(f"{value!r:.100} is not HOST:PORT")


Endpoint = Annotated[str, BeforeValidator(_endpoint)]


class ServerSpec(Section):
    """The kind of server of the engines; the addresses are those of a Triton server."""

    kind: ServerKind = "triton"
    """`embedded` runs the engines as processes of the program itself (openvino)."""
    host: Host = "127.0.0.1"
    """The IPv4 address or host name on which the server listens."""
    grpc_port: Port = "auto"
    """A TCP port; `auto` is a Unix domain socket of this user if `host` is loopback."""
    http_port: HttpPort = "off"
    """The port of Triton's HTTP API."""
    metrics_port: Port = "auto"
    """The port of Triton's Prometheus metrics; `auto` takes a free one."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        ports = (self.grpc_port, self.http_port, self.metrics_port)
        numbers = [port for port in ports if isinstance(port, int)]
        if len(set(numbers)) != len(numbers):
            raise ValueError("grpc_port, http_port and metrics_port must differ")
        return self
