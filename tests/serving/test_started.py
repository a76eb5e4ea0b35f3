"""The life of engines that are servers of their own, with stand-ins for their programs."""

import os
import re
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from tests.serving.conftest import left_of, wait_until
from tests.serving.started import DEMO, Stage, started_deployment

from tts.base.errors import ServerError
from tts.engines.loading import COMPILING, OPEN, READING
from tts.engines.loading import Stage as Loaded
from tts.serving.command.ports import Addresses
from tts.serving.command.server_command import engine_command, find_program
from tts.serving.server.lookup import find_server, served_deployments, stop_server
from tts.serving.server.start import start_server
from tts.serving.server.started import Engine, read_stage, services_of
from tts.serving.server.state import process_fields
from tts.serving.server.triton_log import LOADING

AT = Addresses("127.0.0.1", 0, 4711, 0, api_key="secret")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def status_of(url: str, key: str) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def session_of(pid: int) -> list[int]:
    """What lives in the session of a server."""
    fields = {each: process_fields(each) for each in psutil.pids()}
    return [each for each, of in fields.items() if of and of[0] not in "ZX" and int(of[3]) == pid]


def test_an_engine_listens_on_loopback_with_a_key_that_is_on_no_command_line(stage: Stage):
    service = Engine(started_deployment(), "generator")
    with start_server(service) as running:
        where, pid = running.addresses, running.state.server.pid
        assert where.host == "127.0.0.1"
        assert status_of(f"{where.url}/v1/models", where.api_key) == 200
        assert status_of(f"{where.url}/v1/models", "another") == 401
        (call,) = stage.calls
        assert call["env"]["VLLM_API_KEY"] == where.api_key
        for process in psutil.process_iter(["cmdline"]):
            assert where.api_key not in " ".join(process.info["cmdline"] or ())
        assert where.api_key not in repr(running.state)
        assert stat.S_IMODE(service.folder.stat().st_mode) == 0o700
        assert find_server(service) == running.state
        assert served_deployments() == ["pair"]
        assert len(session_of(pid)) == 2, "the server and its worker"
    assert session_of(pid) == []
    assert find_server(service) is None


@pytest.mark.parametrize(
    ("how", "starts", "message"),
    [
        (["no room"], 1, r"generator stopped\. The KV cache does not hold one sequence"),
        (["port taken"] * 3, 3, "port"),
        (["dies", "dies"], 2, "The vllm server of the generator was killed by SIGKILL"),
        (["dies"], 2, None),
        (["port taken"], 2, None),
    ],
)
def test_what_a_start_that_fails_says_and_whether_it_is_tried_again(
    stage: Stage, how: list[str], starts: int, message: str | None
):
    stage.starts(*how)
    service = Engine(started_deployment(), "generator")
    if message is None:
        start_server(service).stop()
    else:
        with pytest.raises(ServerError, match=message) as failed:
            start_server(service)
        assert str(service.log) in failed.value.hint
    assert len(stage.calls) == starts
    assert find_server(service) is None


STARTS = """
import sys, time
from tests.serving.started import started_deployment
from tts.serving.server.start import start_server
from tts.serving.server.started import Engine
with start_server(Engine(started_deployment(), "generator")) as running:
    print(running.state.server.pid, running.state.guard.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("killed", ["program", "program and guard", "guard", "server"])
def test_nothing_outlives_what_is_killed(stage: Stage, killed: str):
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE) as program:
        server, guard = map(int, program.stdout.readline().split())
        assert len(session_of(server)) == 2
        pids = {"program": program.pid, "guard": guard, "server": server}
        for name in killed.split(" and "):
            os.kill(pids[name], signal.SIGKILL)
        service = Engine(started_deployment(), "generator")
        if "guard" in killed:  # who looks for it next cleans up
            wait_until(lambda: find_server(service) is None)
        wait_until(lambda: not session_of(server))
        assert find_server(service) is None
        program.kill()


def test_a_deployment_that_has_changed_is_not_served_by_what_runs(stage: Stage):
    with start_server(Engine(started_deployment(), "generator")):
        again = Engine(started_deployment(verifier={"max_seq_len": 128}), "generator")
        assert find_server(again) is not None, "another role's engine is another server"
        changed = Engine(started_deployment(generator={"max_seq_len": 128}), "generator")
        with pytest.raises(ServerError, match="has changed since the server at http://127"):
            find_server(changed)
        assert stop_server(changed)


MPS = """
import os, time
from pathlib import Path
assert __import__("sys").argv[1:] == ["-f"]
(Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]) / "control").touch()
time.sleep(600)
"""


def test_an_mps_daemon_of_its_own_starts_before_engines_and_they_find_it(stage: Stage):
    deployment = started_deployment(gpu="h100", mps=True)
    mps, generator, _ = services_of(deployment)
    with pytest.raises(ServerError, match="no nvidia-cuda-mps-control on PATH"):
        start_server(mps)
    stage.add("nvidia-cuda-mps-control", MPS)
    with start_server(mps) as running, start_server(generator):
        pipes = Path(running._launched.command.variables["CUDA_MPS_PIPE_DIRECTORY"])
        assert stat.S_IMODE(pipes.stat().st_mode) == 0o700
        assert len(os.fsencode(pipes)) < 80, "its sockets lie there"
        assert stage.calls[0]["env"]["CUDA_MPS_PIPE_DIRECTORY"] == str(pipes)
    assert left_of("nvidia-cuda-mps-control") == []


def test_a_container_gets_the_key_by_name_and_is_removed_with_its_server():
    image = "vllm/vllm-openai:v0.33.0"
    deployment = started_deployment(gpu="h100", generator={"container": image})
    command = engine_command(deployment, "generator", AT, {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"})
    words = command.words
    assert words[:3] == ["docker", "run", "--rm"]
    assert command.container in " ".join(words)
    assert command.variables["VLLM_API_KEY"] == "secret"
    assert "secret" not in str(words)
    wanted = ["--env=VLLM_API_KEY", "--entrypoint=vllm", "--publish=127.0.0.1:4711:4711"]
    assert {*wanted, "--gpus=all", "--ipc=host", "--pull=never"} < {*words}
    assert f"--mount=type=bind,src={DEMO},dst={DEMO},readonly" in words
    after = words[words.index(image) + 1 :]
    assert after[0] == "serve"
    assert after[after.index("--host") + 1] == "0.0.0.0"


@pytest.mark.parametrize(
    ("section", "message", "hint"),
    [
        ({}, "there is no vllm on PATH", "uv tool install vllm"),
        ({"executable": "/nowhere/vllm"}, r"generator\.executable is /nowhere/vllm", "bin/vllm"),
        (
            {"container": "vllm/vllm-openai:v0.33.0"},
            "there is no docker on PATH",
            "uv tool install",
        ),
    ],
)
def test_an_engine_that_is_not_here_is_refused_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: dict, message: str, hint: str
):
    monkeypatch.setenv("PATH", str(tmp_path))
    spec = started_deployment(generator=section).started()["generator"]
    with pytest.raises(ServerError, match=message) as refused:
        find_program("generator", spec)
    assert hint in str(refused.value.message + (refused.value.hint or ""))


def test_a_program_may_be_named_by_its_environment(stage: Stage):
    spec = started_deployment(generator={"executable": stage.folder.parent}).started()["generator"]
    assert find_program("generator", spec) == stage.program


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        ("INFO vLLM API server", Loaded("generator", LOADING)),
        ("shards:  50% Completed", Loaded("generator", LOADING)),
        (
            "Loading safetensors checkpoint shards:  50% Completed | 1/2",
            Loaded("generator", READING, 0.5),
        ),
        (
            "Capturing CUDA graphs (decode, FULL):  25%|#",
            Loaded("generator", "capturing graphs", 0.25),
        ),
        ("torch.compile takes 20 s in total", Loaded("generator", COMPILING)),
        ("srv  main: server is listening on http://127.0.0.1", Loaded("generator", OPEN)),
        ("INFO:     Application startup complete.", Loaded("generator", OPEN)),
    ],
)
def test_the_log_says_how_far_a_start_is(line: str, stage: Loaded):
    assert read_stage("generator", ["first", line, "another"]) == stage


def test_the_plan_of_a_start_has_neither_key_nor_random_names(stage: Stage):
    commands = [service.planned_command() for service in services_of(started_deployment())]
    assert len(commands) == 2
    assert all(re.search(r"--port \d+ ", str(command)) for command in commands)
    assert "API_KEY" not in str(commands)
