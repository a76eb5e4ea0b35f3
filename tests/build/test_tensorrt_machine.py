"""A machine or container that cannot build is refused before anything runs."""

import shutil

import pytest
from tests.build.stand_in_build import (
    build,
    calls,
    conversions,
    install_version,
    nothing_half_built,
)

from tts.base.errors import BuildError
from tts.build.tensorrt import contract


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"capability": "8.0"}, "has compute capability 8.0, but h100 has 9.0"),
        ({"smi": "NVIDIA-SMI has failed: couldn't communicate"}, "finds no usable GPU: NVIDIA-SMI"),
        ({"missing": "nvidia-smi"}, "no NVIDIA driver on this machine"),
        ({"missing": "docker"}, "docker is not installed"),
        ({"gpus": 7}, r"uses GPU 7, but nvidia-smi lists 4 \(0, 1, 2, 3\)"),
        ({"inside": "25.08"}, "TensorRT-LLM 1.2.1 is in 26.04, 26.05, 26.06, 26.07 only"),
        ({"inside": "26.06", "missing": "trtllm-build"}, "26.06 has no trtllm-build"),
        ({"verify": True}, "not compared with transformers"),
        ({"free": 1000}, r"needs about .* while it is built"),
    ],
)
def test_the_machine_is_checked_before_anything_is_run(
    deploy, misbehave, state, home, monkeypatch, how, sentence
):
    misbehave(**how)
    if missing := how.get("missing"):
        (state.parent / "bin" / missing).unlink()
    if inside := how.get("inside"):
        monkeypatch.setenv(contract.version_variable(), inside)
    if free := how.get("free"):
        usage = shutil.disk_usage("/")._replace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BuildError, match=sentence) as caught:
        build(deploy(tensorrt={"gpus": [[how.get("gpus", 0)]]}), verify=how.get("verify"))
    assert caught.value.hint
    assert calls(state, "docker") == []
    assert nothing_half_built(home)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"visible": 0}, "0 GPUs can be used in this container, but 1 are needed"),
        ({"inside_capability": "8.9"}, "has compute capability 8.9, not 9.0"),
        ({"missing": "trtllm-build"}, "There is no trtllm-build in this container"),
        ({"version": "1.3.0"}, r"This container has TensorRT-LLM 1\.3\.0, not 1\.2\.1"),
        ({"version": None}, "There is no TensorRT-LLM in this container"),
        ({"import": "from openai import PartReasoningText"}, r"failed \(check\). The Python pack"),
    ],
)
def test_the_container_is_checked_before_hours_are_spent(deploy, misbehave, state, how, sentence):
    misbehave(**how)
    if missing := how.get("missing"):
        (state.parent / "bin" / missing).unlink()
    if version := how.get("version"):
        install_version(state.parent / "site", version)
    elif "version" in how:
        shutil.rmtree(state.parent / "site" / "tensorrt_llm.dist-info")
    if line := how.get("import"):
        (state.parent / "site" / "openai.py").touch()
        (state.parent / "site" / "tensorrt_llm" / "models.py").write_text(line)
    with pytest.raises(BuildError, match=sentence):
        build(deploy())
    assert conversions(state) == 0
