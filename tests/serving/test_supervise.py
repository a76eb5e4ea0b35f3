"""A server that dies is started again, but not for ever, and not one that was stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.build.errors import ServerError
from tts.build.spec import Deployment
from tts.serving.server import supervise
from tts.serving.server.health import Health
from tts.serving.server.lookup import find_server, stop_server
from tts.serving.server.state import ServerState, identify
from tts.serving.server.supervise import MOST_RESTARTS, WINDOW_S, wait_before_restart

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


SUPERVISOR = """
import signal, sys
sys.path.insert(0, {here!r})
import pytest
from conftest import *
patch = pytest.MonkeyPatch()
patch.setattr(paths, "templates_dir", lambda: __import__("pathlib").Path({templates!r}))
patch.setattr(repository, "require_current", lambda d: ENGINES)
from tts.serving.server.supervise import supervise
signal.signal(signal.SIGTERM, signal.default_int_handler)
supervise(make_deployment(host="0.0.0.0"), say=lambda line: print(line, flush=True))
"""


@pytest.mark.server
def test_a_killed_server_is_back_at_its_addresses_until_it_is_stopped(echo: Echo, templates: Path):
    """On all interfaces gRPC has a port chosen by the system, which must be the same one again."""
    deployment = echo(host="0.0.0.0")
    script = SUPERVISOR.format(here=str(Path(__file__).parent), templates=str(templates))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
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
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert find_server(deployment) is None


def test_a_client_leaves_a_death_to_a_living_supervisor(echo: Echo):
    me, gone = identify(os.getpid()), identify(os.getpid())
    gone = type(gone)(gone.pid, gone.started_ticks + 1)
    state = ServerState("echo", "", None, server=gone, supervisor=me)
    Health(state, {}).check_from_outside()
    for supervisor in (None, gone):
        left = ServerState("echo", "", None, server=gone, supervisor=supervisor)
        with pytest.raises(ServerError, match="died"):
            Health(left, {}).check_from_outside()
