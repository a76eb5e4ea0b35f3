"""The check of the docker command that runs a server."""

import pytest
from tests.checks.deployments import LLAMA, serious

from tts.build.spec import bundled_deployments, load_deployment
from tts.checks import server_start
from tts.serving.command.server_command import ServerCommand, server_command

TWO = "llama-8b-prm-8b-2xh100-bf16"
LLM = "llama-1b-prm-8b-h100-llmapi"


@pytest.mark.parametrize("name", bundled_deployments())
def test_the_command_of_every_ready_made_deployment_is_as_it_should_be(name: str):
    assert list(server_start.container_command(load_deployment(name))) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "what", "why"),
    [
        (LLAMA, "--shm-size=2g", "--shm-size=64m", "lacks --shm-size=2g", "shared memory"),
        (LLAMA, "--gpus=all", "", "lacks --gpus=all", "numbers"),
        (LLAMA, ",readonly", "", "lacks --mount=type=bind,src=", "at the path it has"),
        (LLAMA, ":8002:8002", ":8002:8001", "lacks --publish=127.0.0.1:8002:8002", "connect"),
        (LLAMA, "nvcr.io/", "docker.io/", "does not run the image nvcr.io/", "otherwise"),
        (TWO, "--env=TRTLLM_ORCHESTRATOR=1", "", "lacks --env=TRTLLM_ORCHESTRATOR=1", "reads its"),
        (TWO, "mpirun", "env", "lacks mpirun", "otherwise"),
        (TWO, "--metrics-port", "--metric-port", "tritonserver does not know", "otherwise"),
        (
            TWO,
            "-restricted-api=shared-memory,",
            "-restricted-api=",
            "lacks --http-restricted-api=",
            "any client",
        ),
        (LLM, "/checkpoints/", "/built/", "lacks --mount=type=bind,src=", "or checkpoint at"),
        (LLM, "--env=USER=tts", "--env=TRTLLM_ORCHESTRATOR=1", "nobody asked for", "reads its"),
        (LLM, "--model-control-mode=none", "mpirun", "has mpirun", "otherwise"),
    ],
)
def test_what_is_wrong_with_it_is_told(
    monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str, what: str, why: str
):
    def damaged(*given: object) -> ServerCommand:
        made = server_command(*given)  # type: ignore[arg-type]
        made.words[:] = filter(None, (word.replace(old, new) for word in made.words))
        return made

    monkeypatch.setattr(server_start, "server_command", damaged)
    found = serious(load_deployment(name))
    assert {finding.where for finding in found} == {"container command"}
    (finding, *_) = (finding for finding in found if what in finding.what)
    assert why in finding.why
    assert "fault of the toolkit" in finding.fix
