"""Starting, watching and stopping the real tritonserver on models that only echo."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import psutil
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tts.build import paths
from tts.build.errors import ServerError
from tts.build.spec import Deployment
from tts.serving.command.ports import Addresses
from tts.serving.server import probe
from tts.serving.server import start as server
from tts.serving.server.health import observe
from tts.serving.server.start import find_server, start_server, stop_server

pytestmark = pytest.mark.server

Echo = Callable[..., Deployment]
HERE = Path(__file__).parent


def ours(prefix: str) -> list[str]:
    """What is left of a server: its processes and shared memory regions."""
    processes = [
        " ".join(process.info["cmdline"])
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and any(prefix in word for word in process.info["cmdline"] or ())
    ]
    return processes + [path.name for path in Path("/dev/shm").iterdir() if prefix in path.name]


def wait_until(condition: Callable[[], object], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        time.sleep(0.02)


def test_a_started_server_answers_is_found_and_leaves_nothing_behind(echo: Echo):
    deployment = echo()
    lines: list[str] = []
    with start_server(deployment, say=lines.append) as running:
        running.check()
        assert find_server(deployment) == running.state
        assert sorted(running.health.stubs.values()) == ["generator", "prm"]
        assert [line.split()[0] for line in lines] == ["Starting", "Ready:"]
        with pytest.raises(ServerError, match=r"already served by the server at 127.0.0.1:\d+"):
            start_server(deployment)
        listening = {
            connection.laddr.ip
            for connection in psutil.Process(running.state.server.pid).net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}
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
    assert ours(running.state.shm_prefix) == []
    assert find_server(deployment) is None
    assert not stop_server(deployment)


def test_a_given_port_tells_whose_server_answers_there(echo: Echo):
    with start_server(echo()) as running:
        port = running.addresses.grpc_port
        ours_by_port = echo().model_copy(update={"server": echo(grpc_port=port).server})
        running._state_file.rename(running._state_file.with_suffix(".aside"))
        state = find_server(ours_by_port)
        assert state is not None
        assert state.server is None
        observe(state).check()  # by inference, as its processes are not ours to look at
        with pytest.raises(
            ServerError, match=rf"127.0.0.1:{port} .*does not serve deployment other"
        ):
            find_server(echo("other", grpc_port=port))
        with pytest.raises(ServerError, match=rf"Port {port} .*in use by PID \d+ \(tritonserver\)"):
            server.choose_addresses(echo(metrics_port=port).server)


def test_a_changed_deployment_is_not_taken_for_the_running_one(echo: Echo):
    deployment = echo()
    changed = deployment.model_copy(
        update={"generator": deployment.generator.model_copy(update={"max_batch_size": 3})}
    )
    with start_server(deployment) as running:
        with pytest.raises(ServerError, match="echo has changed since the server") as error:
            find_server(changed)
        assert "tts serve echo --stop" in str(error.value)
        assert stop_server(changed)
        assert ours(running.state.shm_prefix) == []
        with pytest.raises(ServerError, match="was stopped by another process"):
            running.check()


def test_a_killed_stub_is_noticed_and_named(echo: Echo):
    with start_server(echo()) as running:
        victim = next(stub for stub, model in running.health.stubs.items() if model == "prm")
        os.kill(victim.pid, signal.SIGKILL)
        expected = rf"stub of model prm \(PID {victim.pid}\) died, killed by SIGKILL"
        with pytest.raises(ServerError, match=expected):
            asyncio.run(asyncio.wait_for(running.watch(0.2), timeout=2.0))
        with pytest.raises(ServerError, match=r"Model prm .*fails a one-token request"):
            probe.probe(running.addresses.grpc, timeout_s=2.0)
    assert ours(running.state.shm_prefix) == []


def test_a_killed_server_is_noticed_named_and_cleaned_up(echo: Echo):
    deployment = echo()
    with start_server(deployment) as running:
        found = observe(find_server(deployment))
        os.kill(running.state.server.pid, signal.SIGKILL)
        with pytest.raises(ServerError, match=r"server .*(died|was killed by SIGKILL)"):
            asyncio.run(asyncio.wait_for(running.watch(0.2), timeout=2.0))
        with pytest.raises(ServerError, match=r"server \(PID \d+\) died"):
            found.check()
        wait_until(lambda: ours(running.state.shm_prefix) == [], 3)
        assert find_server(deployment) is None


def test_a_model_that_fails_to_load_is_named_with_its_reason(echo: Echo, templates: Path):
    (templates / "common" / "prm" / "1" / "model.py").write_text(
        "class TritonPythonModel:\n"
        "    def initialize(self, args):\n"
        "        raise ValueError('the engine /built/verifier has no \"label\" rows')\n"
    )
    deployment = echo()
    with pytest.raises(ServerError) as error:
        start_server(deployment)
    assert error.value.message == (
        "The Triton server stopped: model prm failed to load: "
        'ValueError: the engine /built/verifier has no "label" rows.'
    )
    assert "triton.log" in str(error.value)
    assert find_server(deployment) is None


def test_a_port_lost_in_a_race_is_replaced(echo: Echo, monkeypatch: pytest.MonkeyPatch):
    chosen: list[Addresses] = []
    choose = server.choose_addresses
    with socket.create_server(("127.0.0.1", 0)) as thief:

        def racing(spec: object) -> Addresses:
            addresses = choose(spec)
            if not chosen:
                taken = thief.getsockname()[1]
                addresses = Addresses(addresses.host, taken, *addresses_of(addresses)[1:])
            chosen.append(addresses)
            return addresses

        monkeypatch.setattr(server, "choose_addresses", racing)
        with start_server(echo()) as running:
            assert len(chosen) == 2
            assert running.addresses == chosen[1]


def addresses_of(addresses: Addresses) -> tuple[int, int, int]:
    return addresses.grpc_port, addresses.http_port, addresses.metrics_port


def test_not_ready_in_time_is_an_error_and_leaves_nothing(echo: Echo, templates: Path):
    model = templates / "common" / "prm" / "1" / "model.py"
    model.write_text(
        "import time\n" + model.read_text() + "\n    def initialize(self, args): time.sleep(30)\n"
    )
    with pytest.raises(ServerError, match=r"not ready within 1 s"):
        start_server(echo(), ready_timeout_s=1.0)
    assert ours(str(paths.repository_dir("echo"))) == []


PARENT = """
import sys, time
sys.path.insert(0, {here!r})
import pytest
from conftest import *
deployment = make_deployment()
patch = pytest.MonkeyPatch()
patch.setattr(paths, "templates_dir", lambda: __import__("pathlib").Path({templates!r}))
patch.setattr(repository, "require_current", lambda d: ENGINES)
from tts.serving.server.start import start_server
with start_server(deployment) as running:
    print(running.state.shm_prefix, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def parent(echo: Echo, templates: Path):
    """Another process that started a server; its stdout has told the server's prefix."""
    script = PARENT.format(here=str(HERE), templates=str(templates))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        prefix = process.stdout.readline().strip()
        assert re.fullmatch(r"tts-[0-9a-f]+-", prefix)
        assert ours(prefix)
        yield process, prefix
        process.kill()


def test_a_server_dies_with_a_parent_that_was_killed(echo: Echo, parent):
    process, prefix = parent
    process.kill()
    wait_until(lambda: ours(prefix) == [], 8)
    assert find_server(echo()) is None


def test_a_double_ctrl_c_leaves_nothing_behind(parent):
    process, prefix = parent
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: ours(prefix) == [], 8)
    assert process.wait(5) != 0


def test_another_process_can_stop_the_server(echo: Echo, parent):
    _process, prefix = parent
    deployment = echo()
    assert find_server(deployment) is not None
    assert stop_server(deployment)
    assert ours(prefix) == []
    assert find_server(deployment) is None


def test_a_killed_guard_takes_the_server_along(echo: Echo):
    deployment = echo()
    with start_server(deployment) as running:
        os.kill(running.state.guard.pid, signal.SIGKILL)
        wait_until(lambda: running.state.server.process() is None, 2)
        with pytest.raises(ServerError, match="server"):
            running.check()
        assert find_server(deployment) is None  # and cleans up what the guard could not
        assert ours(running.state.shm_prefix) == []
