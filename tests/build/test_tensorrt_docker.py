"""Steps as docker commands."""

from pathlib import Path

from tests.build.tensorrt_deployments import WORK

from tts.build.tensorrt.commands import (
    BuildStep,
)
from tts.build.tensorrt.toolchain import docker_command, shell_text


def test_docker_mounts_what_a_checkpoint_links_to(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snap, shot"
    blobs.mkdir()
    snapshot.mkdir()
    (blobs / "1").touch()
    (snapshot / "model.safetensors").symlink_to("../blobs/1")
    step = BuildStep("convert", ("python3",), (1, 2), reads=(snapshot,))
    command = docker_command(step, WORK, "26.07", "name")
    assert f'--mount=type=bind,"src={snapshot}","dst={snapshot}",readonly' in command
    assert f"--mount=type=bind,src={blobs},dst={blobs},readonly" in command
    assert '--gpus="device=1,2"' in command
    assert "--network=none" in command


def test_a_printed_command_can_be_pasted() -> None:
    import shlex

    step = BuildStep("convert", ("python3", "--a", "b c", "it's"), (0,), reads=(Path("/x y"),))
    command = docker_command(step, WORK, "26.07", "name")
    assert tuple(shlex.split(shell_text(command).replace("\\\n", ""))) == command
