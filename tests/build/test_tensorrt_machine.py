"""A machine or container that cannot build is refused before anything runs."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.build.stand_in_build import (
    Deploy,
    Misbehave,
    build,
    calls,
    conversions,
    install_version,
    nothing_half_built,
)

from tts.build.builder import build_engines
from tts.build.errors import BuildError
from tts.build.tensorrt import contract


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"capability": "8.0"}, "has compute capability 8.0, but h100 has 9.0"),
        ({"smi": "NVIDIA-SMI has failed: couldn't communicate"}, "finds no usable GPU: NVIDIA-SMI"),
    ],
)
def test_the_machine_is_checked_before_anything_is_run(
    deploy: Deploy, misbehave: Misbehave, state: Path, home: Path, how: Any, sentence: str
) -> None:
    misbehave(**how)
    with pytest.raises(BuildError, match=sentence):
        build_engines(deploy(), say=print)
    assert calls(state, "docker") == []
    assert nothing_half_built(home)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"visible": 0}, "0 GPUs can be used in this container, but 1 are needed"),
        ({"inside_capability": "8.9"}, "has compute capability 8.9, not 9.0"),
    ],
)
def test_the_container_is_checked_before_hours_are_spent(
    deploy: Deploy, misbehave: Misbehave, state: Path, how: Any, sentence: str
) -> None:
    misbehave(**how)
    with pytest.raises(BuildError, match=sentence):
        build(deploy())
    assert conversions(state) == 0


def test_another_tensorrt_llm_is_refused(deploy: Deploy, state: Path) -> None:
    install_version(state.parent / "site", "1.3.0")
    with pytest.raises(BuildError, match=r"This container has TensorRT-LLM 1\.3\.0, not 1\.2\.1"):
        build(deploy())
    assert conversions(state) == 0


def test_a_gpu_that_is_not_there(deploy: Deploy) -> None:
    with pytest.raises(BuildError, match=r"uses GPU 7, but nvidia-smi lists 4 \(0, 1, 2, 3\)"):
        build(deploy(tensorrt={"gpus": [[7]]}))


@pytest.mark.parametrize(
    ("tool", "sentence"),
    [("docker", "docker is not installed"), ("nvidia-smi", "no NVIDIA driver on this machine")],
)
def test_a_missing_program(deploy: Deploy, state: Path, tool: str, sentence: str) -> None:
    (state.parent / "bin" / tool).unlink()
    with pytest.raises(BuildError, match=sentence) as caught:
        build(deploy())
    assert caught.value.hint


@pytest.mark.parametrize(
    ("tag", "sentence"),
    [("25.08", "TensorRT-LLM 1.2.1 is in 26.04, 26.05, 26.06, 26.07 only"), ("26.06", "no trtllm")],
)
def test_the_wrong_container(
    deploy: Deploy, state: Path, monkeypatch: pytest.MonkeyPatch, tag: str, sentence: str
) -> None:
    monkeypatch.setenv(contract.version_variable(), tag)
    (state.parent / "bin" / "trtllm-build").unlink()
    with pytest.raises(BuildError, match=sentence):
        build(deploy())


def test_verification_is_refused(deploy: Deploy) -> None:
    with pytest.raises(BuildError, match="not compared with transformers"):
        build(deploy(), verify=True)


def test_not_enough_space(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BuildError, match=r"needs about .* while it is built"):
        build(deploy())
