"""Starts that fail by no fault of the deployment's: they are tried once more, and end in any case.

Triton's Python backend gives a stub up that has not moved for a second, and waits for its end.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.serving.conftest import let_initialize

from tts.build.spec import Deployment
from tts.serving.server import start
from tts.serving.server.start import start_server
from tts.serving.server.triton import Triton

pytestmark = pytest.mark.server

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
