"""Given ports are checked, automatic ones are free and differ."""

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest
from tests.forks import said_by_a_stranger

from tts.base.errors import ConfigError, ServerError
from tts.base.paths import server_dir
from tts.base.user_paths import is_own, private_folder
from tts.build.spec import ServerSpec
from tts.serving.command.ports import (
    SOCKET_BYTES,
    Addresses,
    choose_addresses,
    is_loopback,
    socket_path,
)

SOCKET = Path("/nowhere/grpc:1")


def test_automatic_ports_are_free_and_differ():
    addresses = choose_addresses(ServerSpec(host="0.0.0.0", http_port="auto"), SOCKET)
    ports = {addresses.grpc_port, addresses.http_port, addresses.metrics_port}
    assert len(ports) == 3
    assert addresses.grpc == f"127.0.0.1:{addresses.grpc_port}"
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_a_port_in_use_is_named_with_its_field_and_process():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerError) as error:
            choose_addresses(ServerSpec(grpc_port=port), SOCKET)
    expected = rf"Port {port} (server.grpc_port) is in use by PID {os.getpid()} ("
    assert error.value.message.startswith(expected)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_host_that_is_not_here_is_named(host: str):
    with pytest.raises(
        ServerError, match=rf"server\.host is '{host}', which is not an IPv4 address"
    ):
        choose_addresses(ServerSpec(host=host), SOCKET)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_clients_get_an_address_they_can_connect_to(host: str):
    assert Addresses(host, 1, 2, 3).grpc == "127.0.0.1:1"


def test_by_default_grpc_is_a_socket_and_http_is_closed():
    addresses = choose_addresses(ServerSpec(), SOCKET)
    assert addresses.grpc == f"unix:{SOCKET}"
    assert ":".join(map(str, addresses.grpc_arguments)) == addresses.grpc
    assert (addresses.grpc_port, addresses.http_port) == (0, 0)
    assert addresses.metrics_port


def test_a_given_port_with_connections_that_have_just_ended_is_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            served, _ = server.accept()
            served.close()  # the first to close is left in TIME_WAIT
            assert client.recv(1) == b""
    addresses = choose_addresses(ServerSpec(grpc_port=port), SOCKET)
    assert (addresses.grpc, addresses.socket) == (f"127.0.0.1:{port}", "")


@pytest.mark.parametrize("runtime", ["", "/run/user/7", "/" + 120 * "x"])
def test_a_socket_has_a_short_path_that_only_depends_on_home_and_deployment(
    runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setenv("TTS_HOME", str(tmp_path / (200 * "x")))
    path = socket_path("demo")
    assert len(str(path)) <= SOCKET_BYTES
    assert path == socket_path("demo") != socket_path("other")
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    assert path != socket_path("demo")


def test_a_folder_that_somebody_else_has_made_in_tmp_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tts.serving.command.ports.is_own", lambda folder: folder != theirs)
    theirs = Path(f"/tmp/tts-{os.getuid()}")
    monkeypatch.setenv("TTS_HOME", "/tmp/x")
    assert socket_path("demo").is_relative_to(server_dir("demo"))
    assert socket_path("demo") == socket_path("demo")
    monkeypatch.setenv("TTS_HOME", str(tmp_path / (200 * "x")))
    fresh = socket_path("demo")
    assert len(str(fresh)) <= SOCKET_BYTES
    assert str(fresh).startswith(f"{theirs}-")
    assert fresh.parents[1] != socket_path("demo").parents[1]  # nobody can make it before


def test_whose_a_folder_is(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert [is_own(tmp_path / name) for name in ("", "not yet", "link")] == [True, True, False]
    folder = Path(tempfile.mkdtemp())
    try:
        assert said_by_a_stranger(lambda: is_own(folder)) == "False"
        assert said_by_a_stranger(lambda: is_own(folder / "x")) == "False"
    finally:
        folder.rmdir()


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "localhost", "::1")),
        *((host, False) for host in ("0.0.0.0", "192.0.2.1", "127.example.invalid", "127.", "::")),
    ],
)
def test_loopback_is_known_by_its_address_and_not_by_its_looks(host: str, is_one: bool):
    assert is_loopback(host) is is_one


def test_a_private_folder_is_closed_to_others_even_if_it_was_open(tmp_path: Path):
    folder = tmp_path / "a" / "b"
    assert stat.S_IMODE(private_folder(folder).stat().st_mode) == 0o700
    folder.chmod(0o755)
    assert stat.S_IMODE(private_folder(folder).stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["shared", "link"])
def test_a_folder_of_everybodys_and_a_link_are_refused_and_left_alone(tmp_path: Path, name: str):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)  # as /tmp, which is root's own
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match=f"{name} is not a folder of this user"):
        private_folder(tmp_path / name)
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o1777
