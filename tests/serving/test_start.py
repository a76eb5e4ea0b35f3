"""Starts that fail: by chance they are tried once more, and end in any case.

Triton's Python backend gives a stub up that has not moved for a second, and waits for its end.
"""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.serving.conftest import let_initialize

from tts.base.errors import ServerError
from tts.build.spec import Deployment
from tts.serving.command.ports import Addresses, socket_path
from tts.serving.command.server_command import ServerCommand
from tts.serving.server import start, triton
from tts.serving.server.launch import PortTaken
from tts.serving.server.start import start_server
from tts.serving.server.state import TransientStartError
from tts.serving.server.triton import Triton

COUNT = """\
import os, pathlib, signal, subprocess
from tts.engines.loading import OPEN, Stage, tell
starts = pathlib.Path({starts!r})
with starts.open("a") as file:
    print("start", file=file)
if len(starts.read_text().splitlines()) <= 1:
    {failure}
for model in "generator", "prm":
    tell(Stage(model, OPEN))"""
FROZEN = (
    "subprocess.Popen(['sh', '-c', f'sleep 4; kill -CONT {os.getpid()}']); "
    "os.kill(os.getpid(), signal.SIGSTOP)"
)
ABORTED = "os.kill(os.getppid(), signal.SIGABRT)"
LOST = "os.kill(os.getpid(), signal.SIGKILL)"
STOOD_STILL = r"done nothing for 2 s \(generator: open, verifier: open\): its log did not grow"
FAILURES = [
    pytest.param(FROZEN, STOOD_STILL, id="taken for dead"),
    pytest.param(ABORTED, r"The Triton server was killed by SIGABRT\.", id="aborted"),
    pytest.param(
        LOST, r"model generator failed to load: Stub process .* is not healthy", id="lost"
    ),
]


@pytest.mark.server
@pytest.mark.parametrize(("failure", "message"), FAILURES)
def test_a_start_that_fails_by_chance_is_tried_once_more(
    echo: Callable[..., Deployment],
    templates: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: str,
    message: str,
):
    """That a second one ends it is tested without Triton."""
    monkeypatch.setattr(start, "OPEN_STALL_S", 2.0)
    starts = tmp_path / "starts"
    code = COUNT.format(starts=str(starts), failure=failure)
    let_initialize(templates, code, "openvino/generator")
    said: list[str] = []
    with start_server(Triton(echo()), say=said.append):
        pass
    assert starts.read_text().split() == ["start"] * 2
    assert re.search(message, said[1])
    assert said[1].endswith("It is started once more.")


Failing = Callable[[ServerError], list[object]]


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Makes every launch fail in one way; gives the launches."""
    (tmp_path / "runtime").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    runtime = SimpleNamespace(describe=lambda: "a server")
    command = ServerCommand(["server"], {}, "none of ours", Addresses("127.0.0.1", 1, 0, 0))
    monkeypatch.setattr(triton, "find_runtime", lambda deployment: runtime)
    monkeypatch.setattr(triton, "server_command", lambda *arguments: command)

    def let(error: ServerError) -> list[object]:
        launched: list[object] = []

        def launch(*arguments: object, **options: object) -> None:
            launched.append(arguments)
            raise error

        monkeypatch.setattr(start, "launch", launch)
        return launched

    return let


@pytest.mark.parametrize(
    ("error", "launches"),
    [
        (TransientStartError("It stood still.", hint="See its log."), 2),
        (PortTaken("Port 1 is in use."), 3),
        (ServerError("A model does not load."), 1),
    ],
)
def test_what_may_pass_is_tried_again_and_then_raised_as_any_other(
    echo: Callable[[], Deployment], failing: Failing, error: ServerError, launches: int
):
    launched = failing(error)
    said: list[str] = []
    with pytest.raises(ServerError) as failed:
        start_server(Triton(echo()), say=said.append)
    assert len(launched) == launches
    assert (failed.value.message, failed.value.hint) == (error.message, error.hint)
    assert not isinstance(failed.value, TransientStartError)
    again = [line for line in said if line.endswith("It is started once more.")]
    assert again == [f"{error.message} It is started once more."] * isinstance(
        error, TransientStartError
    )


def test_the_folders_of_the_socket_are_this_users_alone(
    echo: Callable[[], Deployment], failing: Failing
):
    failing(ServerError("no"))
    with pytest.raises(ServerError, match="no"):
        start_server(Triton(echo()))
    folder = socket_path("echo").parent
    assert [each.stat().st_mode & 0o777 for each in (folder, folder.parent)] == [0o700] * 2
    assert [each.name for each in folder.parents[1].iterdir()] == ["tts"]
