"""Given ports are checked, automatic ones are free and differ."""

import os
import socket

import pytest

from tts.build.errors import ServerError
from tts.build.spec import ServerSpec
from tts.serving.command.ports import Addresses, choose_addresses


def test_automatic_ports_are_free_and_differ():
    addresses = choose_addresses(ServerSpec())
    ports = {addresses.grpc_port, addresses.http_port, addresses.metrics_port}
    assert len(ports) == 3
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_a_port_in_use_is_named_with_its_field_and_process():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerError) as error:
            choose_addresses(ServerSpec(grpc_port=port))
    expected = rf"Port {port} (server.grpc_port) is in use by PID {os.getpid()} ("
    assert error.value.message.startswith(expected)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "::1"])
def test_a_host_that_is_not_here_is_named(host: str):
    with pytest.raises(
        ServerError, match=rf"server\.host is '{host}', which is not an IPv4 address"
    ):
        choose_addresses(ServerSpec(host=host))


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1:1"), ("0.0.0.0", "127.0.0.1:1")],
)
def test_clients_get_an_address_they_can_connect_to(host: str, address: str):
    assert Addresses(host, 1, 2, 3).grpc == address
