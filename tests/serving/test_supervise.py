"""A server that dies is started again, but not for ever, and not one that was stopped."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serving.conftest import echo_program, let_initialize

from tts.base.errors import ServerError
from tts.build.spec import Deployment
from tts.serving.server import supervise
from tts.serving.server.locks import comes_back, supervisor_of
from tts.serving.server.lookup import find_server, stop_server
from tts.serving.server.state import identify
from tts.serving.server.supervise import (
    MAX_RESTARTS,
    WINDOW_S,
    BackgroundServer,
    wait_before_restart,
    wait_for_server,
)
from tts.serving.server.triton import Triton

Echo = Callable[..., Deployment]


@given(st.lists(st.floats(0, 3 * WINDOW_S), min_size=1).map(sorted))
def test_a_server_is_started_again_a_bounded_number_of_times_in_any_window(failures: list[float]):
    recent = [time for time in failures if failures[-1] - time < WINDOW_S]
    assert (wait_before_restart(failures) is None) == (len(recent) > MAX_RESTARTS)


def test_each_restart_in_the_window_waits_twice_as_long():
    waits = [wait_before_restart([0.0] * n) for n in range(1, MAX_RESTARTS + 2)]
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
        supervise.supervise(Triton(echo()), say=lambda line: None, stop=threading.Event())
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
    supervise.supervise(Triton(echo()), say=said.append, stop=Stop())
    assert starts == [None, *[Server.addresses] * 2]
    assert Stop.waits == [1, 2, 4]
    assert said == [
        f"The Triton server died. It is started again in {wait} s." for wait in (1, 2, 4)
    ]


SUPERVISOR = """
import signal
from tts.serving.server import supervise
from tts.serving.server.triton import Triton
supervise.FIRST_WAIT_S = {wait}
signal.signal(signal.SIGTERM, signal.default_int_handler)
deployment = make_deployment(host="0.0.0.0")
say = lambda line: print(line, flush=True)
supervise.serve([Triton(deployment)], say=say, on_loading=lambda loading: None)
"""


@contextmanager
def supervisor(
    templates: Path, until: str = "Ready", wait: float = 1
) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    """A process that serves the echo models, once it has said so, and what it says then.

    It waits so long before the first restart.
    """
    with echo_program(templates, SUPERVISOR.format(wait=wait)) as process:
        try:
            said = iter(process.stdout.readline, "")
            assert any(line.startswith(until) for line in said)
            yield process, said
        finally:
            process.kill()


@pytest.mark.server
def test_a_killed_server_is_back_at_its_addresses_until_it_is_stopped(echo: Echo, templates: Path):
    """On all interfaces gRPC has a port chosen by the system, which must be the same one again."""
    deployment = echo(host="0.0.0.0")
    with supervisor(templates) as (process, said):
        first = find_server(Triton(deployment))
        assert first.supervisor == identify(process.pid)
        os.kill(first.server.pid, signal.SIGKILL)
        assert any("SIGKILL. It is started again in 1 s." in line for line in said)
        assert any(line.startswith("Ready") for line in said)
        second = find_server(Triton(deployment))
        assert second.addresses == first.addresses
        assert second.server != first.server
        assert stop_server(Triton(deployment))
        assert list(said) == ["Stopping ...\n"]
        assert process.wait(120) == 0
    assert find_server(Triton(deployment)) is None


@pytest.mark.server
def test_a_server_is_stopped_for_good_in_the_pause_before_its_restart(echo: Echo, templates: Path):
    deployment = echo(host="0.0.0.0")
    with supervisor(templates, wait=600) as (process, said):
        os.kill(find_server(Triton(deployment)).server.pid, signal.SIGKILL)
        assert any("started again in 600 s" in line for line in said)
        assert comes_back(Triton(deployment))
        assert stop_server(Triton(deployment))
        assert process.wait(120) == 0
        assert list(said) == ["Stopping ...\n"]
    assert supervisor_of(Triton(deployment)) is None
    assert not comes_back(Triton(deployment))
    assert not stop_server(Triton(deployment))


@pytest.mark.server
def test_a_server_is_stopped_while_its_engines_load(echo: Echo, templates: Path):
    deployment = echo(host="0.0.0.0")
    let_initialize(templates, "import time; time.sleep(600)")
    with supervisor(templates, "Starting") as (process, _):
        assert stop_server(Triton(deployment))
        assert process.wait(120) != 0, "it has served nothing"
    assert not comes_back(Triton(deployment))


@pytest.mark.slow  # two starts; a killed server that is back is tried by default
@pytest.mark.server
def test_a_server_that_another_process_starts_again_is_waited_for_and_used(
    echo: Echo, templates: Path
):
    deployment, told, said_here = echo(host="0.0.0.0"), [], []
    with supervisor(templates) as (process, said):
        first = find_server(Triton(deployment))
        os.kill(first.server.pid, signal.SIGKILL)
        assert any("started again" in line for line in said)
        second, _ = wait_for_server(
            Triton(deployment), say=said_here.append, on_loading=told.append, check=lambda: None
        )
        assert second.server != first.server
        assert find_server(Triton(deployment)) == second
        with pytest.raises(ServerError, match=rf"already served .* \(PID {process.pid}\)"):
            supervise.supervise(Triton(deployment), say=lambda line: None, stop=threading.Event())
        assert stop_server(Triton(deployment))
    assert len(said_here) == 1
    assert f"(PID {process.pid}) is starting" in said_here[0]
    assert told[0].engines.keys() == {"generator", "verifier"}
    nobody = wait_for_server(Triton(deployment), say=print, on_loading=print, check=lambda: None)
    assert nobody is None


@pytest.mark.server
def test_a_program_keeps_its_own_server_running_until_somebody_stops_it(echo: Echo):
    """The program itself goes on: it is not what `tts serve --stop` ends."""
    deployment, said, stop = echo(), [], threading.Event()
    own = BackgroundServer(Triton(deployment), stop, said.append, lasting=False)
    own.start()
    assert own.ready.wait(60)
    first = find_server(Triton(deployment))
    assert first.supervisor is None
    assert not own.comes_back()
    os.kill(first.server.pid, signal.SIGKILL)
    while not any(line.startswith("Ready") for line in said[2:]):
        own.check()
        time.sleep(0.05)
    second = find_server(Triton(deployment))
    assert second.addresses == first.addresses
    assert second.server != first.server
    assert stop_server(Triton(deployment))
    own.join(30)
    with pytest.raises(ServerError, match="stopped by another process"):
        own.check()
    assert not own.comes_back()
    assert any("started again" in line for line in said)
