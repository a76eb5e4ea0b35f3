"""A server that dies is started again, but not for ever, and not one that was stopped."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.build.errors import ServerError
from tts.build.spec import Deployment
from tts.serving.server import supervise
from tts.serving.server.lookup import Health, find_server, observe, stop_server
from tts.serving.server.start import start_server
from tts.serving.server.state import ServerState, comes_back, identify, supervisor_of
from tts.serving.server.supervise import (
    MOST_RESTARTS,
    WINDOW_S,
    BackgroundServer,
    wait_before_restart,
    wait_for_server,
)

Echo = Callable[..., Deployment]


@given(st.lists(st.floats(0, 3 * WINDOW_S), min_size=1).map(sorted))
def test_a_server_is_started_again_a_bounded_number_of_times_in_any_window(failures: list[float]):
    recent = [time for time in failures if failures[-1] - time < WINDOW_S]
    assert (wait_before_restart(failures) is None) == (len(recent) > MOST_RESTARTS)


def test_each_restart_in_the_window_waits_twice_as_long():
    waits = [wait_before_restart([0.0] * n) for n in range(1, MOST_RESTARTS + 2)]
    assert waits == [1, 2, 4, 8, 16, None]


def test_a_server_that_does_not_start_at_first_is_not_tried_again(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
):
    starts: list[object] = []

    def start(*args: object, **options: object) -> None:
        starts.append(options)
        raise ServerError("There is no tritonserver.")

    monkeypatch.setattr(supervise, "start_server", start)
    with pytest.raises(ServerError, match="no tritonserver"):
        supervise.supervise(echo(), say=lambda line: None)
    assert len(starts) == 1


def test_a_server_that_dies_is_started_again_at_its_addresses_after_longer_and_longer_waits(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
):
    class Server:
        addresses = "where it listens"

        def __enter__(self) -> "Server":
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def check(self) -> None:
            raise ServerError("The Triton server died.")

    class Stop:
        waits: ClassVar[list[float]] = []

        def wait(self, seconds: float) -> bool:
            self.waits.append(seconds)
            return len(self.waits) == 3

    def start(*args: object, addresses: object, **options: object) -> Server:
        starts.append(addresses)
        return Server()

    starts: list[object] = []
    said: list[str] = []
    monkeypatch.setattr(supervise, "start_server", start)
    supervise.supervise(echo(), say=said.append, stop=Stop())
    assert starts == [None, *[Server.addresses] * 2]
    assert Stop.waits == [1, 2, 4]
    assert said == [
        "Press Ctrl-C to stop.",
        *(f"The Triton server died. It is started again in {wait} s." for wait in (1, 2, 4)),
        "Stopping ...",
    ]


SUPERVISOR = """
import signal, sys
sys.path.insert(0, {here!r})
import pytest
from conftest import *
patch = pytest.MonkeyPatch()
serve_echo(patch, Path({templates!r}))
from tts.serving.server import supervise as module
from tts.serving.server.supervise import supervise
module.FIRST_WAIT_S = {wait}
signal.signal(signal.SIGTERM, signal.default_int_handler)
supervise(make_deployment(host="0.0.0.0"), say=lambda line: print(line, flush=True))
"""


def supervisor(templates: Path, wait: float = 1) -> subprocess.Popen[str]:
    """A process that serves the echo models, and waits so long before the first restart."""
    here = str(Path(__file__).parent)
    script = SUPERVISOR.format(here=here, templates=str(templates), wait=wait)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    )


@pytest.mark.server
def test_a_killed_server_is_back_at_its_addresses_until_it_is_stopped(echo: Echo, templates: Path):
    """On all interfaces gRPC has a port chosen by the system, which must be the same one again."""
    deployment = echo(host="0.0.0.0")
    with supervisor(templates) as process:
        try:
            said = iter(process.stdout.readline, "")
            assert any(line.startswith("Ready") for line in said)
            first = find_server(deployment)
            assert first.supervisor == identify(process.pid)
            os.kill(first.server.pid, signal.SIGKILL)
            assert any("SIGKILL. It is started again in 1 s." in line for line in said)
            assert any(line.startswith("Ready") for line in said)
            second = find_server(deployment)
            assert second.addresses == first.addresses
            assert second.server != first.server
            assert stop_server(deployment)
            assert list(said) == ["Stopping ...\n"]
            assert process.wait(120) == 0
        finally:
            process.kill()
    assert find_server(deployment) is None


@pytest.mark.server
def test_a_server_is_stopped_for_good_in_the_pause_before_its_restart(echo: Echo, templates: Path):
    deployment = echo(host="0.0.0.0")
    with supervisor(templates, wait=600) as process:
        try:
            said = iter(process.stdout.readline, "")
            assert any(line.startswith("Ready") for line in said)
            os.kill(find_server(deployment).server.pid, signal.SIGKILL)
            assert any("started again in 600 s" in line for line in said)
            assert comes_back(deployment.name)
            assert stop_server(deployment)
            assert process.wait(120) == 0
            assert list(said) == ["Stopping ...\n"]
        finally:
            process.kill()
    assert supervisor_of(deployment.name) is None
    assert not comes_back(deployment.name)
    assert not stop_server(deployment)


@pytest.mark.server
def test_a_server_is_stopped_while_its_engines_load(echo: Echo, templates: Path):
    deployment = echo(host="0.0.0.0")
    model = templates / "common" / "prm" / "1" / "model.py"
    sleeping = "\n    def initialize(self, args): time.sleep(600)\n"
    model.write_text("import time\n" + model.read_text() + sleeping)
    with supervisor(templates) as process:
        try:
            said = iter(process.stdout.readline, "")
            assert any(line.startswith("Starting") for line in said)
            assert stop_server(deployment)
            assert process.wait(120) != 0, "it has served nothing"
        finally:
            process.kill()
    assert not comes_back(deployment.name)


@pytest.mark.slow  # two starts; a killed server that is back is tried by default
@pytest.mark.server
def test_a_server_that_another_process_starts_again_is_waited_for_and_used(
    echo: Echo, templates: Path
):
    deployment, told, said_here = echo(host="0.0.0.0"), [], []
    with supervisor(templates) as process:
        try:
            said = iter(process.stdout.readline, "")
            assert any(line.startswith("Ready") for line in said)
            first = find_server(deployment)
            os.kill(first.server.pid, signal.SIGKILL)
            assert any("started again" in line for line in said)
            second, _ = wait_for_server(
                deployment, say=said_here.append, on_loading=told.append, check=lambda: None
            )
            assert second.server != first.server
            assert find_server(deployment) == second
            with pytest.raises(ServerError, match=rf"already served .* \(PID {process.pid}\)"):
                supervise.supervise(deployment, say=lambda line: None)
            assert stop_server(deployment)
        finally:
            process.kill()
    assert said_here == [
        f"Waiting for the server of echo, which another process (PID {process.pid}) is starting; "
        "given up once that does nothing for 600 s"
    ]
    assert set(told[0].engines) == {"generator", "verifier"}
    nobody = wait_for_server(deployment, say=print, on_loading=print, check=lambda: None)
    assert nobody is None


@pytest.mark.server
def test_a_program_keeps_its_own_server_running_until_somebody_stops_it(echo: Echo):
    """The program itself goes on: it is not what `tts serve --stop` ends."""
    deployment, said, stop = echo(), [], threading.Event()
    own = BackgroundServer(deployment, stop, said.append, lasting=False)
    own.start()
    assert own.ready.wait(60)
    first = find_server(deployment)
    assert first.supervisor is None
    assert not own.comes_back()
    os.kill(first.server.pid, signal.SIGKILL)
    while not any(line.startswith("Ready") for line in said[2:]):
        own.check()
        time.sleep(0.05)
    second = find_server(deployment)
    assert second.addresses == first.addresses
    assert second.server != first.server
    assert stop_server(deployment)
    own.join(30)
    with pytest.raises(ServerError, match="stopped by another process"):
        own.check()
    assert not own.comes_back()
    assert any("started again" in line for line in said)


def test_a_client_leaves_a_death_to_a_living_supervisor(echo: Echo):
    me, gone = identify(os.getpid()), identify(os.getpid())
    gone = type(gone)(gone.pid, gone.started_ticks + 1)
    state = ServerState("echo", "", None, server=gone, supervisor=me)
    Health(state, {}).check_from_outside()
    for supervisor in (None, gone):
        left = ServerState("echo", "", None, server=gone, supervisor=supervisor)
        with pytest.raises(ServerError, match="died"):
            Health(left, {}).check_from_outside()


@pytest.mark.slow
def test_a_server_that_another_process_stopped_is_said_to_have_been_its(echo):
    with start_server(echo()) as running:
        borrowed = observe(running.state)
        borrowed.check_from_outside()
    with pytest.raises(ServerError, match="died") as error:
        borrowed.check_from_outside()
    assert "It belonged to another process" in error.value.hint
    assert "tts serve echo\nIts log:" in error.value.hint
