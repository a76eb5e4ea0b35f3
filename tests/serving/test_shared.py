"""Programs that open one deployment at a time share its server; it ends with the last of them."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.serving.conftest import echo_program, left_of, let_initialize, wait_until

from tts.base import paths
from tts.base.errors import ServerError
from tts.build.spec import Deployment
from tts.serving.command import guard
from tts.serving.server import start, supervise
from tts.serving.server.locks import Supervised, give_back, supervising, supervisor_of, take_share
from tts.serving.server.lookup import find_server, stop_server
from tts.serving.server.state import identify, peek_state
from tts.serving.server.supervise import wait_for_server
from tts.serving.server.triton import Triton

Echo = Callable[..., Deployment]

PROGRAM = """
import asyncio
from tts.serving.server import probe
from tts.serving.server.triton import Triton
from tts.fleet import server as module


def say(line):
    print(line, flush=True)


async def use():
    server = await module.open_server(Triton(make_deployment()), say)
    say("open")
    for line in sys.stdin:
        if line == "close\\n":
            break
        server.check()
        probe.probe(server.address)
        say("answers")
    await asyncio.to_thread(server.stop)
    say("closed")
    sys.stdin.readline()  # the program goes on


asyncio.run(use())
"""


class Program:
    """A process that uses the server of the echo models as a session does."""

    def __init__(self, templates: Path) -> None:
        self.process = echo_program(templates, PROGRAM, stdin=subprocess.PIPE)
        self.said: list[str] = []

    def until(self, beginning: str) -> None:
        """Read its lines up to one that begins so."""
        for line in iter(self.process.stdout.readline, ""):
            self.said.append(line.strip())
            if line.startswith(beginning):
                return
        raise AssertionError(f"it ended without {beginning!r}: {self.said}")

    def tell(self, word: str, until: str) -> None:
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        self.until(until)


@pytest.fixture
def programs(echo: Echo, templates: Path) -> Iterator[Callable[..., Program]]:
    """Starts programs; all of them are gone afterwards, and nothing of a server is left."""
    started: list[Program] = []

    def start(until: str | None = "open") -> Program:
        started.append(Program(templates))
        if until is not None:
            started[-1].until(until)
        return started[-1]

    yield start
    for program in started:
        with program.process:
            program.process.kill()


@contextmanager
def nothing_left(deployment: Deployment) -> Iterator[None]:
    """Nothing is left of the server that runs at first: process, socket, folder, shared memory."""
    state = find_server(Triton(deployment))
    socket = Path(state.addresses.socket)
    assert socket.is_socket()
    yield
    words = (state.mark, str(paths.server_dir(deployment.name)))
    wait_until(lambda: not (left_of(*words) or socket.exists() or socket.parent.exists()))
    assert not (paths.server_dir(deployment.name) / guard.STATE).exists()
    assert find_server(Triton(deployment)) is None


@pytest.mark.server
def test_two_programs_at_once_use_one_server_which_ends_with_the_last(echo: Echo, programs):
    first, second = programs(None), programs(None)
    for program in (first, second):
        program.until("open")
    with nothing_left(echo()):
        starts = [line for line in first.said + second.said if line.startswith("Starting")]
        assert len(starts) == 1
        owner, borrower = (first, second) if "Starting" in str(first.said) else (second, first)
        assert any(line.startswith("Using the server at") for line in borrower.said)
        before = find_server(Triton(echo()))
        owner.tell("close", "closed")
        borrower.tell("go on", "answers")
        assert find_server(Triton(echo())) == before
        assert owner.process.poll() is None
        borrower.tell("close", "closed")
        assert before.server.process() is None, "closing the last one waits for the end"


@pytest.mark.server
@pytest.mark.parametrize(
    "killed", ["owner", pytest.param("borrower", marks=pytest.mark.slow), "both"]
)
def test_a_killed_user_leaves_the_server_to_the_others(echo: Echo, programs, killed: str):
    owner, borrower = programs(), programs()
    with nothing_left(echo()):
        if killed == "borrower":
            borrower.process.kill()
            borrower.process.wait()
            owner.tell("go on", "answers")
            owner.tell("close", "closed")
            return
        owner.process.kill()
        owner.process.wait()
        time.sleep(1.0)  # its guard notices within a quarter of it
        borrower.tell("go on", "answers")
        if killed == "both":
            borrower.process.kill()
            return
        third = programs()
        borrower.tell("close", "closed")
        third.tell("go on", "answers")
        third.tell("close", "closed")


@pytest.mark.slow
@pytest.mark.server
def test_a_server_that_is_stopped_is_stopped_for_all_of_its_users(echo: Echo, programs):
    _, borrower = programs(), programs()
    with nothing_left(echo()):
        assert stop_server(Triton(echo()))
        with pytest.raises(AssertionError, match="it ended without"):
            borrower.tell("go on", "answers")


@pytest.mark.slow  # three programs and two starts
@pytest.mark.server
def test_who_waits_for_a_starter_that_dies_starts_the_server_itself(
    echo: Echo, templates: Path, programs
):
    model = templates / "common" / "prm" / "1" / "model.py"
    whole = model.read_text()
    let_initialize(templates, "import time; time.sleep(600)")
    starter, waiting = programs("Starting"), programs("Waiting for the Triton server of echo")
    assert f"(PID {starter.process.pid})" in waiting.said[-1]
    model.write_text(whole)
    starter.process.kill()
    waiting.until("open")
    with nothing_left(echo()):
        waiting.tell("go on", "answers")
        waiting.tell("close", "closed")


@pytest.mark.slow  # three programs and two starts
@pytest.mark.server
def test_a_program_waits_for_another_ones_server_that_died_to_be_back(echo: Echo, programs):
    owner, borrower = programs(), programs()
    first = find_server(Triton(echo()))
    os.kill(first.server.pid, signal.SIGKILL)
    file = paths.server_dir("echo") / guard.STATE
    wait_until(lambda: (state := peek_state(file)) and state.server != first.server)
    with nothing_left(echo()):
        borrower.tell("go on", "answers")
        owner.tell("close", "closed")
        borrower.tell("go on", "answers")
        borrower.tell("close", "closed")


def test_shares_are_counted_and_nobody_joins_while_the_last_user_ends_it(echo: Echo):
    paths.server_dir("echo").mkdir(parents=True)
    first, second = take_share(paths.server_dir("echo")), take_share(paths.server_dir("echo"))
    with give_back(first) as last:
        assert not last
    joined = []
    with give_back(second) as last:
        assert last

        def check() -> None:
            joined.append(False)
            raise ServerError("enough")

        with pytest.raises(ServerError, match="enough"):
            take_share(paths.server_dir("echo"), check)
    assert joined == [False]
    with give_back(take_share(paths.server_dir("echo"))) as last:
        assert last


def test_a_fork_is_no_user(echo: Echo):
    paths.server_dir("echo").mkdir(parents=True)
    share = take_share(paths.server_dir("echo"))
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(write)
        os.read(read, 1)  # until the parent has ended its use
        os._exit(0)
    os.close(read)
    try:
        with give_back(share) as last:
            assert last
        with give_back(take_share(paths.server_dir("echo"))) as last:
            assert last, "the fork still holds a share"
    finally:
        os.close(write)
        os.waitpid(child, 0)


def test_one_process_starts_a_server_and_says_which(echo: Echo):
    with supervising(Triton(echo()), lasting=False):
        assert supervisor_of(Triton(echo())) == identify(os.getpid())
        assert supervisor_of(Triton(echo()), lasting=True) is None
        starting = rf"process \(PID {os.getpid()}\) is starting"
        with pytest.raises(Supervised, match=starting), supervising(Triton(echo())):
            pass
        assert not stop_server(Triton(echo())), "nobody ends a program that only starts a server"
    assert supervisor_of(Triton(echo())) is None
    with supervising(Triton(echo())):
        assert supervisor_of(Triton(echo()), lasting=True) == identify(os.getpid())


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"pid": 1}', '{"pid": "x"}', "null"])
def test_a_damaged_lock_names_nobody(echo: Echo, content: str):
    folder = paths.server_dir("echo")
    folder.mkdir(parents=True)
    (folder / "supervisor.lock").write_text(content)
    assert supervisor_of(Triton(echo())) is None


def test_the_wait_for_a_start_that_does_nothing_any_more_ends(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
):
    """The starter is stopped by a signal: it holds its lock, computes nothing, logs nothing."""
    monkeypatch.setattr(supervise, "TELL_S", 0.01)
    monkeypatch.setattr(supervise, "_SAY_S", 0.1)
    monkeypatch.setattr(start, "STALL_S", 0.5)
    patient = supervise.Watchdog
    monkeypatch.setattr(
        supervise, "Watchdog", lambda service, process: patient(service, process, 0.5)
    )
    deployment, said, told = echo(), [], []
    folder = paths.server_dir("echo")
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        starter = stack.enter_context(subprocess.Popen(["sleep", "600"]))
        stack.callback(starter.kill)
        holder = identify(starter.pid)
        lock = {"pid": holder.pid, "started_ticks": holder.started_ticks, "lasting": False}
        (folder / "supervisor.lock").write_text(json.dumps(lock))
        with pytest.raises(ServerError) as error:
            wait_for_server(
                Triton(deployment), say=said.append, on_loading=told.append, check=lambda: None
            )
    assert re.match(
        rf"Waited for \d+ s while another process \(PID {starter.pid}\) was starting the Triton "
        r"server of echo\. .* done nothing for 0 s \(generator: waiting, verifier: waiting\)",
        error.value.message,
    )
    assert "End that process" in error.value.hint
    assert said[0].startswith("Waiting for the Triton server of echo")
    assert said[1].startswith("Still waiting after 0 s: generator: waiting")
    assert told[-1].seconds > 0
    # and it ends with the starter
    assert (
        wait_for_server(Triton(deployment), say=print, on_loading=print, check=lambda: None) is None
    )
