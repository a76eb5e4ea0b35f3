"""Starting, watching and stopping the real tritonserver on models that only echo."""

import asyncio
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grpc
import psutil
import pytest
from tests.serving.conftest import (
    PATIENCE_S,
    TEMPLATES,
    echo_program,
    left_of,
    let_initialize,
    make_deployment,
    serve_echo,
    wait_until,
)
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tts.base import paths
from tts.base.errors import ConfigError, ServerError
from tts.base.machine_limits import MemoryLimit
from tts.build.spec import Deployment
from tts.serving.command.ports import Addresses
from tts.serving.server import probe, triton
from tts.serving.server import start as server
from tts.serving.server.launch import Launched, Stopped, why_stopped
from tts.serving.server.lookup import Health, find_server, observe, stop_server, watch
from tts.serving.server.start import RunningServer, start_server
from tts.serving.server.state import ServerState, clean_up, identify
from tts.serving.server.triton import Triton

pytestmark = pytest.mark.server

Echo = Callable[..., Deployment]


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with HTTP, of an interpreter found by a relative PATH.

    Its shared memory is as it was at its first moment, not closed afterwards.
    """
    home = tmp_path_factory.mktemp("standing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTS_HOME", str(home / "home"))
        serve_echo(patch, shutil.copytree(TEMPLATES, home / "templates"))
        patch.setattr(sys, "executable", os.path.relpath(sys.executable))
        patch.setattr(server, "close_shared_memory", lambda prefix: None)
        running = start_server(Triton(make_deployment(http_port="auto")))
    with running:
        yield running


DEMO = paths.deployments_dir().parent / "checkpoints" / "demo-generator"


def test_a_pair_that_does_not_fit_the_memory_is_refused_before_anything_starts(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
):
    limit = MemoryLimit(2**20, "this test")
    monkeypatch.setattr("tts.build.openvino.memory.memory_limit", lambda: limit)
    deployment = echo(checkpoint=DEMO)
    with pytest.raises(ConfigError, match=r"needs 0\.\d+ GiB of memory .* 0\.00 GiB in this test"):
        start_server(Triton(deployment))
    assert not (paths.server_dir(deployment.name) / "triton.log").exists()


def test_a_pair_for_which_too_little_memory_is_free_is_started_with_a_warning(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tts.build.openvino.memory.memory_available", lambda: 2**20)
    service, lines = Triton(echo(checkpoint=DEMO)), list[str]()
    service.folder.mkdir(parents=True)
    service.prepare(lines.append)
    assert "needs 0." in lines[0]
    assert lines[0].endswith("0.00 GiB are available now.")
    assert lines[1].startswith("Starting")


def test_a_started_server_answers_is_found_and_leaves_nothing_behind(echo: Echo):
    deployment = echo()
    lines: list[str] = []
    with start_server(Triton(deployment), say=lines.append) as running:
        running.check()
        assert find_server(Triton(deployment)) == running.state
        assert sorted(running.health.parts.values()) == [
            f"Python stub of model {model}" for model in ("generator", "prm")
        ]
        assert [line.split()[0] for line in lines] == ["Starting", "Ready:"]
        with pytest.raises(ServerError, match=r"already served by the server at unix:/"):
            start_server(Triton(deployment))
        listening = {
            connection.laddr
            for connection in psutil.Process(running.state.server.pid).net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert {ip.removeprefix("::ffff:") for ip, _ in listening} == {"127.0.0.1"}
        assert {port for _, port in listening} == {running.addresses.metrics_port}
        with probe.connect(running.addresses.grpc) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for call, request in (
                (stub.RepositoryModelUnload, service_pb2.RepositoryModelUnloadRequest()),
                (stub.SystemSharedMemoryStatus, service_pb2.SystemSharedMemoryStatusRequest()),
                (stub.LogSettings, service_pb2.LogSettingsRequest()),
            ):
                with pytest.raises(grpc.RpcError, match="restricted"):
                    call(request)
    running.stop()  # a second time
    assert not Path(running.addresses.socket).parent.exists()
    assert left_of(running.state.mark) == []
    assert find_server(Triton(deployment)) is None
    assert not stop_server(Triton(deployment))


@pytest.mark.slow  # leftovers: the campaign of faults
def test_temporary_files_of_a_killed_server_lie_in_its_folder_and_go_with_the_next_start(
    echo: Echo,
):
    deployment = echo()
    temporary = paths.server_dir(deployment.name) / "runtime" / "tmp"
    with start_server(Triton(deployment)) as running:
        (made,) = temporary.iterdir()
        environment = psutil.Process(running.state.server.pid).environ()
        assert environment["TMPDIR"] == str(temporary)
        psutil.Process(running.state.server.pid).kill()
        psutil.Process(running.state.guard.pid).kill()
    assert made.exists()
    with start_server(Triton(deployment)):
        (made_next,) = temporary.iterdir()
        assert made_next != made
    # on a busy machine the server may be killed before it has cleared up itself
    assert set(temporary.iterdir()) <= {made_next}


def test_a_given_port_tells_whose_server_answers_there(echo: Echo):
    port = free_port()
    with start_server(Triton(echo(grpc_port=port))) as running:
        assert running.addresses.grpc == f"127.0.0.1:{port}"
        ours_by_port = echo().model_copy(update={"server": echo(grpc_port=port).server})
        file = running.service.state_file
        file.rename(file.with_suffix(".aside"))
        state = find_server(Triton(ours_by_port))
        assert state is not None
        assert state.server is None
        observe(
            Triton(ours_by_port), state
        ).check()  # by inference, as its processes are not ours to look at
        with pytest.raises(
            ServerError, match=rf"127.0.0.1:{port} .*does not serve deployment other"
        ):
            find_server(Triton(echo("other", grpc_port=port)))
        with pytest.raises(ServerError, match=rf"Port {port} .*in use by PID \d+ \(tritonserver\)"):
            triton.choose_addresses(echo(metrics_port=port).server, Path("/nowhere"))


def test_a_server_whose_port_another_process_has_just_taken_is_started_on_another(
    echo: Echo, monkeypatch
):
    choose, chosen = triton.choose_addresses, []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def lose_the_first(*arguments):
            found = choose(*arguments)
            if not chosen:
                found = replace(found, metrics_port=other.getsockname()[1])
            chosen.append(found)
            return found

        monkeypatch.setattr(triton, "choose_addresses", lose_the_first)
        with start_server(Triton(echo())) as running:
            assert running.addresses == chosen[1] != chosen[0]
            time.sleep(1)  # one that has lost a port ends within milliseconds
            running.check()


def test_a_changed_deployment_is_not_taken_for_the_running_one(echo: Echo):
    deployment = echo()
    changed = deployment.model_copy(
        update={"generator": deployment.generator.model_copy(update={"max_batch_size": 3})}
    )
    with start_server(Triton(deployment)) as running:
        with pytest.raises(ServerError, match="echo has changed since the server") as error:
            find_server(Triton(changed))
        assert "tts serve echo --stop" in str(error.value)
        assert stop_server(Triton(changed))
        assert left_of(running.state.mark) == []
        with pytest.raises(ServerError, match="was stopped by another process"):
            running.check()


def test_a_killed_stub_is_noticed_and_named(echo: Echo):
    with start_server(Triton(echo())) as running:
        victim = next(s for s, title in running.health.parts.items() if title.endswith(" prm"))
        os.kill(victim.pid, signal.SIGKILL)
        expected = rf"stub of model prm \(PID {victim.pid}\) was killed by SIGKILL"
        with pytest.raises(ServerError, match=expected):
            asyncio.run(asyncio.wait_for(watch(running.check, 0.2), timeout=PATIENCE_S))
        with pytest.raises(ServerError, match=r"Model prm .*fails a one-token request"):
            probe.probe(running.addresses.grpc, timeout_s=PATIENCE_S)
    assert left_of(running.state.mark) == []


def test_a_killed_server_is_noticed_named_and_cleaned_up(echo: Echo):
    deployment = echo()
    with start_server(Triton(deployment)) as running:
        found = observe(running.service, find_server(Triton(deployment)))
        os.kill(running.state.server.pid, signal.SIGKILL)
        with pytest.raises(ServerError, match="was killed by SIGKILL"):
            asyncio.run(asyncio.wait_for(watch(running.check, 0.2), timeout=PATIENCE_S))
        with pytest.raises(ServerError, match=r"server (died|was killed by SIGKILL)\."):
            found.check()
        wait_until(lambda: left_of(running.state.mark) == [])
        assert find_server(Triton(deployment)) is None


def test_a_server_that_is_gone_before_its_guard_is_asked_for_how():
    """Between the two deaths, while the guard cleans up, only it knows the signal."""

    class Guard:
        def poll(self):
            return None

        def wait(self, timeout):
            return 128 + signal.SIGKILL

    gone = replace(identify(os.getpid()), started_ticks=0)
    launched = Launched(Triton(make_deployment()), Guard(), gone, None)
    with pytest.raises(ServerError, match="was killed by SIGKILL"):
        launched.require_running()


def test_whoever_notices_a_death_first_says_it_in_the_same_words(tmp_path):
    """Its process is gone for a look at it; the guard, asked before, would have seen it alive."""

    class Guard:
        def poll(self):
            return 128 + signal.SIGKILL

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        dead = identify(process.pid)
        process.kill()
        wait_until(lambda: dead.process() is None)  # a zombie
        running, service = RunningServer.__new__(RunningServer), Triton(make_deployment())
        running.service = service
        running.health = Health(service, ServerState("echo", "", None, server=dead), {})
        running._launched = Launched(service, Guard(), dead, None)
        messages = []
        for notice in (running.health.check, running._launched.require_running, running.check):
            with pytest.raises(ServerError) as error:
                notice()
            messages.append(error.value.message)
    assert messages == ["The Triton server was killed by SIGKILL."] * 3


def test_a_server_that_has_to_be_killed_to_stop_it_was_stopped_all_the_same(tmp_path):
    """On a busy machine Triton takes longer to stop than its guard waits."""
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('deaf', flush=True); time.sleep(600)"
    )
    program = (
        "import sys; from tts.serving.command import guard; guard.GRACE_S = 0.1\n"
        f"sys.exit(guard.run({os.getpid()}, 'tts-none-', '', [sys.executable, '-c', {deaf!r}], []))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"deaf\n"
        process.terminate()
        assert process.wait(120) == 0
        assert isinstance(why_stopped(Triton(make_deployment()), process.returncode), Stopped)


def test_a_model_that_fails_to_load_is_named_with_its_reason(echo: Echo, templates: Path):
    let_initialize(templates, """raise ValueError('engine /built/verifier has no "label" rows')""")
    deployment = echo()
    with pytest.raises(ServerError) as error:
        start_server(Triton(deployment))
    assert error.value.message == (
        "The Triton server stopped: model prm failed to load: "
        'ValueError: engine /built/verifier has no "label" rows.'
    )
    assert "triton.log" in str(error.value)
    assert find_server(Triton(deployment)) is None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_not_ready_in_time_is_an_error_and_leaves_nothing(echo: Echo, templates: Path):
    let_initialize(templates, "import time; time.sleep(600)")
    with pytest.raises(ServerError, match=r"not ready, and has done nothing for 1 s"):
        start_server(Triton(echo()), stall_s=1.0)
    assert left_of(str(paths.repository_dir("echo"))) == []


PARENT = """
import time
from tts.serving.server.start import start_server
from tts.serving.server.triton import Triton
with start_server(Triton(make_deployment())) as running:
    print(running.state.mark, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def parent(echo: Echo, templates: Path):
    """Another process that started a server; its stdout has told the server's prefix."""
    with echo_program(templates, PARENT) as process:
        prefix = process.stdout.readline().strip()
        assert re.fullmatch(r"tts-[0-9a-f]+-", prefix)
        assert left_of(prefix)
        yield process, prefix
        process.kill()


def test_a_server_dies_with_a_parent_that_was_killed(echo: Echo, parent):
    process, prefix = parent
    process.kill()
    wait_until(lambda: left_of(prefix) == [])
    assert find_server(Triton(echo())) is None


def test_a_double_ctrl_c_leaves_nothing_behind(parent):
    process, prefix = parent
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: left_of(prefix) == [])
    assert process.wait(PATIENCE_S) != 0


def test_another_process_can_stop_the_server(echo: Echo, parent):
    _process, prefix = parent
    deployment = echo()
    assert find_server(Triton(deployment)) is not None
    assert stop_server(Triton(deployment))
    assert left_of(prefix) == []
    assert find_server(Triton(deployment)) is None


def test_a_guard_killed_while_the_server_starts_leaves_nothing(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
):
    prefixes = []
    others = set(psutil.Process().children())  # the guards of servers that other tests use

    def kill_the_guard() -> None:
        for child in set(psutil.Process().children()) - others:
            words: list[str] = []
            with suppress(psutil.ZombieProcess):  # the one that was killed
                words = child.cmdline()
            if any(word.endswith("guard.py") for word in words):
                prefixes.append(next(word for word in words if re.fullmatch(r"tts-\w+-", word)))
                wait_until(lambda: len(left_of(prefixes[-1])) > 3)  # the stubs are there
                child.kill()

    with pytest.raises(ServerError, match="killed by SIGKILL"):
        start_server(Triton(echo()), check=kill_the_guard)
    assert len(prefixes) == 2  # the server, and the one that was started once more
    wait_until(lambda: not any(map(left_of, prefixes)))


def test_a_disk_that_refuses_the_servers_files_is_named(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/somewhere/config.pbtxt")

    monkeypatch.setattr(triton, "render_repository", full)
    with pytest.raises(ServerError, match=r"/somewhere/config\.pbtxt: No space left"):
        start_server(Triton(echo()))


def test_a_killed_guard_takes_the_server_along(echo: Echo):
    deployment = echo()
    with start_server(Triton(deployment)) as running:
        os.kill(running.state.guard.pid, signal.SIGKILL)
        wait_until(lambda: running.state.server.process() is None)
        with pytest.raises(ServerError, match="server"):
            running.check()
        assert find_server(Triton(deployment)) is None  # and cleans up what the guard could not
        assert left_of(running.state.mark) == []


def open_to_others(folder: Path) -> list[str]:
    """What of a folder another user can reach, itself included."""
    if not folder.stat().st_mode & 0o077:
        return []
    return [str(folder)] + [str(p) for p in folder.rglob("*") if p.lstat().st_mode & 0o077]


def test_nothing_of_a_server_can_be_read_or_reached_by_another_user(standing: RunningServer):
    """Shared memory from its first moment: who opens it before it is closed reads what comes."""
    socket_file = Path(standing.addresses.socket)
    assert socket_file.is_socket()
    for folder in (*socket_file.parents[:2], standing.service.folder):
        assert open_to_others(folder) == []
    regions = list(Path("/dev/shm").glob(f"{standing.state.mark}*"))
    assert [region.stat().st_mode & 0o777 for region in regions] == [0o600] * 2


def test_the_end_of_a_server_leaves_the_shared_memory_of_others_alone(
    echo: Echo, standing: RunningServer
):
    def regions() -> set[str]:
        return {path.name for path in Path("/dev/shm").glob(f"{standing.state.mark}*")}

    before = regions()
    assert before
    with start_server(Triton(echo("other"))):
        pass  # stopped in order
    with start_server(Triton(echo("other"))) as killed:
        os.kill(killed.state.guard.pid, signal.SIGKILL)
        wait_until(lambda: killed.state.server.process() is None)
        assert find_server(Triton(echo("other"))) is None  # cleans up after it
    assert left_of(killed.state.mark) == []
    assert regions() == before
    probe.probe(standing.addresses.grpc, timeout_s=PATIENCE_S)


def hpack(name: str, value: str) -> bytes:
    """A literal header field without indexing, RFC 7541 section 6.2.2; no text over 126 bytes."""
    return b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """An HTTP/2 frame, RFC 9113 section 4.1."""
    header = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return header + stream.to_bytes(4, "big") + payload


def raw_grpc(address: str, path: str, header: tuple[str, str]) -> bytes:
    """What a server says to an empty gRPC request that carries a header as it is given."""
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        header,
    ]
    block = b"".join(hpack(*field) for field in fields)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(address.removeprefix("unix:"))
        connection.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + frame(4, 0, 0)  # SETTINGS
            + frame(1, 4, 1, block)  # HEADERS, the last of the block
            + frame(0, 1, 1, bytes(5))  # DATA: a message of no bytes, the last of the stream
        )
        said = b""
        while b"grpc-status" not in said and (more := connection.recv(65536)):
            said += more
    return said


def test_closed_apis_stay_closed_to_a_client_that_writes_its_own_headers(standing: RunningServer):
    """The header that would open them is known: it stands in the command line."""
    status = "/inference.GRPCInferenceService/SystemSharedMemoryStatus"
    live = "/inference.GRPCInferenceService/ServerLive"
    opening = ("triton-grpc-protocol-closed:to-all", "nobody")
    words = psutil.Process(standing.state.server.pid).cmdline()
    assert any(word.endswith(":closed:to-all=nobody") for word in words)
    address = standing.addresses.grpc
    assert b"\x0bgrpc-status\x010" in raw_grpc(address, live, ("x-plain", "1"))
    assert b"restricted" in raw_grpc(address, status, ("x-plain", "1"))
    assert b"\x0bgrpc-status\x010" not in raw_grpc(address, status, opening)


def test_a_state_file_with_a_prefix_that_is_not_ours_kills_nothing():
    prefix = f"bystander-{secrets.token_hex(6)}"
    command = [sys.executable, "-c", "input()", prefix]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as bystander:
        clean_up(ServerState("echo", "", Addresses("127.0.0.1", 0, 0, 0), mark=prefix))
        assert bystander.poll() is None
        bystander.communicate(b"\n")
    assert bystander.returncode == 0


def test_http_opens_on_demand_and_its_closed_apis_stay_closed(standing: RunningServer):
    port = standing.addresses.http_port
    assert b" 200 " in raw_http(port, "/v2/health/live", "x: 1")
    for header in ("x: 1", "closed:to-all: nobody", "closed:to-all=nobody"):
        said = raw_http(port, "/v2/systemsharedmemory/status", header)
        assert b" 403 " in said.splitlines()[0]


def connected(port: int) -> socket.socket:
    """A connection to HTTP, which opens a moment after gRPC has told that the server is ready."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        except ConnectionRefusedError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.05)


def raw_http(port: int, path: str, header: str) -> bytes:
    """What a server says to a GET request with one header line as it is given."""
    with connected(port) as connection:
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n\r\n"
        connection.sendall(request.encode())
        said = b""
        while b"\r\n\r\n" not in said and (more := connection.recv(65536)):
            said += more
    return said
