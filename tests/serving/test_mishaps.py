"""Starts that fail by no fault of the deployment's: they are tried once more, and end in any case.

Triton's Python backend gives a stub up that has not moved for a second, and waits for its end.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tts.build.errors import ServerError
from tts.build.spec import Deployment
from tts.serving.server import loading
from tts.serving.server.start import start_server

Echo = Callable[..., Deployment]

pytestmark = pytest.mark.server

COUNT = """
    import os, pathlib, signal, subprocess
    from tts.engines.loading import OPEN, Stage, tell
    starts = pathlib.Path({starts!r})
    with starts.open("a") as file:
        print("start", file=file)
    if len(starts.read_text().splitlines()) <= {unlucky}:
        {mishap}
    for model in "generator", "prm":
        tell(Stage(model, OPEN))
"""
FROZEN = (
    "subprocess.Popen(['sh', '-c', f'sleep 4; kill -CONT {os.getpid()}']); "
    "os.kill(os.getpid(), signal.SIGSTOP)"
)
ABORTED = "os.kill(os.getppid(), signal.SIGABRT)"
LOST = "os.kill(os.getpid(), signal.SIGKILL)"
STOOD_STILL = r"done nothing for 2 s \(generator: open, verifier: open\): its log did not grow"
MISHAPS = [
    pytest.param(FROZEN, STOOD_STILL, id="taken for dead"),
    pytest.param(ABORTED, r"The Triton server was killed by SIGABRT\.", id="aborted"),
    pytest.param(
        LOST, r"model generator failed to load: Stub process .* is not healthy", id="lost"
    ),
]


@pytest.fixture
def let(
    templates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, int], Path]:
    """Lets something happen to the generator's model in its first starts, which a file lists."""
    monkeypatch.setattr(loading, "OPEN_STALL_S", 2.0)

    def happen(mishap: str, unlucky: int) -> Path:
        starts = tmp_path / "starts"
        code = COUNT.format(starts=str(starts), unlucky=unlucky, mishap=mishap)
        model = templates / "openvino" / "generator" / "1" / "model.py"
        head, line, rest = model.read_text().partition("    def initialize(self, args):\n")
        model.write_text(head + line + code.replace("\n", "\n    ") + "\n" + rest)
        return starts

    return happen


@pytest.mark.parametrize(("mishap", "message"), MISHAPS)
def test_a_start_that_fails_by_chance_is_tried_once_more(
    echo: Echo, let: Callable[[str, int], Path], mishap: str, message: str
):
    starts = let(mishap, 1)
    said: list[str] = []
    with start_server(echo(), say=said.append):
        pass
    assert starts.read_text().split() == ["start"] * 2
    assert re.search(message, said[1])
    assert said[1].endswith("It is started once more.")


@pytest.mark.slow  # two starts each; that it is tried once more is tried by default
@pytest.mark.parametrize(
    ("mishap", "message"),
    [pytest.param(*MISHAPS[0].values, id=MISHAPS[0].id, marks=pytest.mark.slow), *MISHAPS[1:]],
)
def test_a_start_that_fails_so_again_ends(
    echo: Echo, let: Callable[[str, int], Path], mishap: str, message: str
):
    starts = let(mishap, 9)
    with pytest.raises(ServerError, match=message) as error:
        start_server(echo())
    assert type(error.value) is ServerError
    assert "triton.log" in str(error.value.hint)
    assert starts.read_text().split() == ["start"] * 2
