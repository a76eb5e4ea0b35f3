"""Launching a server with TensorRT-LLM engines, played by stand-ins: no engine runs here."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.serving.conftest import wait_until
from tests.serving.facts import LAUNCH, LAUNCH_FILE

from tts.base import paths
from tts.base.errors import BuildError, ServerError
from tts.build.spec import Deployment
from tts.build.tensorrt.engine_memory import TRANSFER_SIZE, TRANSFER_VARIABLE
from tts.serving.command import guard
from tts.serving.command.tritonserver import remove_container
from tts.serving.repository import render as repository
from tts.serving.server.lookup import find_server, stop_server
from tts.serving.server.start import start_server
from tts.serving.server.triton import Triton

Make = Callable[..., Deployment]
PLAY = Path(__file__).parent / "stand_ins" / "play.py"
TWO_GPUS = {"tensorrt": {"tensor_parallel": 2}}


class StandIns:
    """A folder at the head of PATH with stand-in commands."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        shutil.copy(LAUNCH_FILE, self.bin)
        self.play("serve")

    def install(self, *names: str) -> None:
        for name in names:
            command = self.bin / name
            command.write_text(f"#!{sys.executable}\n" + PLAY.read_text())
            command.chmod(0o755)

    def play(self, scenario: str) -> None:
        (self.bin / "scenario").write_text(scenario)

    def calls(self) -> list[list[str]]:
        record = self.bin / "calls.jsonl"
        return [json.loads(line) for line in record.read_text().splitlines()]


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    """No server and no docker but those that a test installs."""
    made = StandIns(tmp_path / "stand-ins")
    monkeypatch.setenv("PATH", os.pathsep.join([str(made.bin), "/usr/bin", "/bin"]))
    monkeypatch.delenv("NVIDIA_TRITON_SERVER_VERSION", raising=False)
    return made


@pytest.fixture
def built(tensorrt: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes deployments whose engines are there, as far as anybody looks."""
    monkeypatch.setattr(repository, "require_current", lambda deployment: {})

    def make(**fields: object) -> Deployment:
        deployment = tensorrt(**fields)
        for role in deployment.engines():
            folder = paths.engine_dir(deployment.name, role)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.json").write_text("{}")
        return deployment

    return make


@pytest.mark.parametrize("engine", [{}, TWO_GPUS], ids=["one GPU", "two GPUs"])
def test_a_server_in_a_container_is_started_found_and_removed(
    stand_ins: StandIns, built: Make, engine: dict[str, object]
):
    stand_ins.install("docker")
    deployment = built(generator=engine)
    lines: list[str] = []
    with start_server(Triton(deployment), say=lines.append) as running:
        running.check()
        assert find_server(Triton(deployment)) == running.state
        name = running.state.container
        assert name.startswith("tts-")
        assert name.endswith("-pair")
    assert lines[0] == (
        "Starting tritonserver in the container nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
    )
    assert find_server(Triton(deployment)) is None
    first, *others = stand_ins.calls()
    assert first[:2] == ["docker", "run"]
    assert ("mpirun" in first) == bool(engine)
    assert ["docker", "rm", "--force", name] in others


def test_another_process_can_stop_it(stand_ins: StandIns, built: Make):
    stand_ins.install("docker")
    deployment = built()
    with start_server(Triton(deployment)) as running:
        assert stop_server(Triton(deployment))
        assert ["docker", "rm", "--force", running.state.container] in stand_ins.calls()
        with pytest.raises(ServerError, match="stopped by another process"):
            running.check()


def test_a_container_whose_docker_command_was_killed_is_removed(stand_ins: StandIns, built: Make):
    stand_ins.install("docker")
    with start_server(Triton(built())) as running:
        os.kill(running.state.server.pid, signal.SIGKILL)
        wait_until(lambda: len(stand_ins.calls()) >= 2)
        with pytest.raises(ServerError, match="The Triton server was killed by SIGKILL"):
            running.check()
        assert stand_ins.calls()[1] == ["docker", "rm", "--force", running.state.container]


@pytest.mark.parametrize(
    ("scenario", "message", "hint"),
    [
        (
            "no image",
            "The container image nvcr.io/.* is not on this machine.",
            "docker pull nvcr.io",
        ),
        ("no gpus", "The container cannot use the GPU", "NVIDIA Container Toolkit"),
        ("no daemon", "its daemon does not answer", "systemctl start docker"),
        ("other tensorrt", "built by another version of TensorRT", "build-engines"),
        ("other gpu", "compute capability 9.0, and this one has 8.9", "kind of GPU that serves"),
        ("no engine", "An engine folder is missing", "build-engines"),
        ("out of memory", "ran out of memory", "kv_cache.tokens"),
        ("unknown", "stopped: something that nobody has seen.", "Its log: .*triton.log"),
    ],
)
def test_each_way_to_fail_is_one_sentence(
    stand_ins: StandIns, built: Make, scenario: str, message: str, hint: str
):
    stand_ins.install("docker")
    stand_ins.play(scenario)
    deployment = built()
    with pytest.raises(ServerError, match=message) as error:
        start_server(Triton(deployment))
    assert "\n" not in error.value.message
    assert re.search(hint, error.value.hint or "")
    assert "triton.log" in (error.value.hint or "")
    assert find_server(Triton(deployment)) is None


def test_a_port_that_docker_cannot_publish_is_tried_again_then_told(
    stand_ins: StandIns, built: Make
):
    stand_ins.install("docker")
    stand_ins.play("port taken")
    with pytest.raises(ServerError, match="port is already allocated"):
        start_server(Triton(built()))
    assert [call[1] for call in stand_ins.calls()].count("run") == 3


@pytest.mark.parametrize("engine", [{}, TWO_GPUS], ids=["one GPU", "two GPUs"])
def test_inside_the_container_tritonserver_is_run_itself(
    stand_ins: StandIns, built: Make, engine: dict[str, object]
):
    stand_ins.install("docker", "tritonserver", "mpirun")
    for backend in ("python", "tensorrtllm"):
        (stand_ins.bin.parent / "backends" / backend).mkdir(parents=True)
    deployment = built(generator=engine)
    with start_server(Triton(deployment)) as running:
        assert running.state.container == ""
    assert [call[0] for call in stand_ins.calls()] == ["mpirun" if engine else "tritonserver"]
    assert find_server(Triton(deployment)) is None


def test_another_container_is_refused(
    stand_ins: StandIns, built: Make, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NVIDIA_TRITON_SERVER_VERSION", "25.08")
    with pytest.raises(ServerError, match=r"tritonserver 25\.08, which holds another TensorRT-LLM"):
        start_server(Triton(built()))


def test_nothing_to_run_it_with_says_so(stand_ins: StandIns, built: Make):
    with pytest.raises(ServerError, match=r"tensorrtllm backend \(none on PATH\)") as error:
        start_server(Triton(built()))
    assert "Install docker" in str(error.value.hint)


def test_missing_engines_are_named_with_the_command_that_builds_them(
    stand_ins: StandIns, tensorrt: Make
):
    stand_ins.install("docker")
    with pytest.raises(BuildError, match="generator and verifier of 'pair'") as error:
        start_server(Triton(tensorrt()))
    assert error.value.hint == "Run: tts build-engines pair"
    assert not (stand_ins.bin / "calls.jsonl").exists()


def test_the_guard_ends_ranks_of_their_own_groups_and_then_runs_the_last_command(tmp_path: Path):
    last, spawn = tmp_path / "last", f"setsid sleep 600 & echo $! > {tmp_path}/rank"
    guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), "tts-none-", ""]
    done = subprocess.run(
        [*guarded, "sh", "-c", spawn, guard.THEN, "touch", str(last)], timeout=120
    )
    assert done.returncode == guard.ENDED
    assert last.exists()
    assert not Path(f"/proc/{(tmp_path / 'rank').read_text().strip()}").exists()


def placed(**fields: object) -> dict[str, object]:
    return {"verifier": {"tensorrt": fields}}


@pytest.mark.parametrize(
    ("fields", "mpirun", "gpus"),
    [
        ({}, False, 0),
        ({"launcher": "mpirun"}, True, 0),
        ({"generator": TWO_GPUS}, True, 2),
        (placed(gpus=[[1]]), True, 2),
        (placed(gpus=[[0], [1]]), True, 2),
        (placed(pipeline_parallel=2), True, 2),
    ],
)
def test_the_placement_decides_what_launches_a_server(
    stand_ins: StandIns, tensorrt: Make, fields: dict[str, object], mpirun: bool, gpus: int
):
    """All but one rank on GPU 0 are placed by an orchestrator; KV transfer buffers stay small."""
    words = Triton(tensorrt(**fields)).planned_command().words
    rule = LAUNCH["environment"]["variables"]
    assert rule[TRANSFER_VARIABLE] == TRANSFER_SIZE
    assert f"--env={TRANSFER_VARIABLE}={TRANSFER_SIZE}" in words
    assert ("mpirun" in words) == mpirun
    if mpirun:
        run, launcher = words[words.index("mpirun") :], LAUNCH["mpirun"]["launcher"]
        assert run[: len(launcher)] == launcher
        assert run[run.index("--bind-to") + 1] == "none", "else all share a core"
        assert "--oversubscribe" in run
    assert any("ORCHESTRATOR" in word for word in words) == bool(gpus)
    assert [word for word in words if "cuda-memory-pool" in word] == [
        f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(gpus)
    ]
    for backend in ("python", "tensorrtllm"):
        (stand_ins.bin.parent / "backends" / backend).mkdir(parents=True)
    stand_ins.install("tritonserver")
    assert rule.items() <= Triton(tensorrt(**fields)).planned_command().variables.items()


def test_a_container_is_removed_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    docker, asked = tmp_path / "docker", tmp_path / "asked"
    docker.write_text(f'#!/bin/sh\necho "$@" > {asked}\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    remove_container("tts-0123456789ab-server")
    assert asked.read_text() == "rm --force tts-0123456789ab-server\n"
    docker.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    remove_container("tts-0123456789ab-server")  # where docker is gone there is nothing to remove
