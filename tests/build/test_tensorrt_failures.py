"""Machines that cannot build, and steps that fail, are killed or interrupted."""

import os
import shutil
import signal
import subprocess
import threading
import time

import pytest
from tests.build.stand_in_build import (
    build,
    calls,
    conversions,
    install_version,
    nothing_half_built,
    option_of,
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


MPI = "It looks like orte_init failed for some reason; your parallel process is"
FAILURES = [
    ("compile", "RuntimeError: CUDA out of memory. Tried to allocate", "GPU ran out of memory"),
    ("check", "ImportError: cannot import name 'PartReasoningText' from", "does not go with its"),
    ("compile", "OSError: [Errno 28] No space left on device", "The disk is full"),
    ("convert", "safetensors: No space left on device (os error 28)", "The disk is full"),
    ("check", "CUDA driver version is insufficient for CUDA runtime", "NVIDIA driver is too old"),
    ("check", "docker: could not select device driver", "cannot use the GPU"),
    ("check", "docker: Cannot connect to the Docker daemon at", "daemon does not answer"),
    ("check", "docker: manifest for nvcr.io/x not found", "image cannot be downloaded"),
    ("check", 'Conflict. The container name "/x" is already in use', "still running"),
    ("compile", "IRuntime: expecting compute 9.0 got compute 8.9", "built for GPUs of"),
    ("convert", "NotImplementedError: Unsupported dataset name", "calibration set cannot"),
    ("compile", "trtllm-build: error: unrecognized arguments: --x", "does not know an argument"),
    ("compile", "AssertionError: something new\nand a last line", "It ended with status 1"),
    ("compile", "[TRT-LLM] [I] building", "It was killed, most likely"),
    ("check", MPI, "MPI does not start in the container"),
]


@pytest.mark.parametrize(("step", "line", "sentence"), FAILURES)
def test_a_failed_step_is_one_clear_sentence(deploy, misbehave, home, state, step, line, sentence):
    status = 137 if "killed" in sentence else 1
    misbehave(at=step, say=f"noise before\n{line}\nnoise after", status=status)
    with pytest.raises(BuildError) as caught:
        build(deploy())
    log = home / "built" / "test" / "generator-build.log"
    first, telling, where = caught.value.message.splitlines()
    assert first.startswith(f"generator: building the engine failed ({step}). ")
    assert sentence in first
    assert telling.strip() in ("noise after" if status == 137 else line)
    assert where == f"The whole log: {log}"
    assert "noise after" in log.read_text()
    assert nothing_half_built(home)


@pytest.mark.parametrize("step", ["check", "convert", "compile"])
def test_after_a_failed_step_a_build_goes_on(deploy, misbehave, state, step):
    misbehave(at=step, say="something new")
    with pytest.raises(BuildError):
        build(deploy())
    misbehave()
    assert build(deploy()).status == "built"
    assert conversions(state) == 1  # a finished one is not repeated, an unfinished one is


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def raised(request):
    """A signal that is raised where the command is; background jobs inherit an ignored SIGINT."""
    before = signal.signal(request.param, signal.default_int_handler)
    yield request.param
    signal.signal(request.param, before)


@pytest.mark.parametrize("inside", [False, True])
def test_ctrl_c_ends_the_step_and_leaves_nothing(
    raised, deploy, misbehave, state, home, monkeypatch, inside
):
    if inside:
        monkeypatch.setenv(contract.version_variable(), "26.07")
    misbehave(at="compile", hang=True)

    def interrupt():
        for _ in range(500):
            if (state / "hanging").exists():
                os.kill(os.getpid(), raised)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        build(deploy())
    thread.join()
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(home) not in running.stdout  # no command of this build is left
    assert nothing_half_built(home)
    misbehave()
    assert build(deploy()).status == "built"
    assert conversions(state) == 1


def test_where_mpi_wants_a_network_the_steps_get_dockers_own(deploy, state, home, misbehave):
    misbehave(isolated=MPI)
    said = []
    assert build(deploy(), say=said.append).status == "built"
    steps_run = [
        (str(option_of(call, "--name")).rpartition("-")[2], option_of(call, "--network") == "none")
        for call in calls(state, "docker")
    ]
    # tried without once; what the first step needed, the others are given
    assert steps_run == [("check", True), ("check", False), ("convert", False), ("compile", False)]
    assert all("--env=HF_HUB_OFFLINE=1" in call for call in calls(state, "docker"))
    note = "MPI did not start in a container without a network"
    assert note in (home / "built" / "test" / "generator-build.log").read_text()
    assert [note in line for line in said].count(True) == 1


@pytest.mark.parametrize(
    ("how", "tries"),
    [({"isolated": "RuntimeError: something else"}, 1), ({"at": "check", "say": MPI}, 2)],
)
def test_only_for_mpi_a_step_is_tried_again_and_only_once(deploy, state, misbehave, how, tries):
    misbehave(**how)
    with pytest.raises(BuildError):
        build(deploy())
    assert len(calls(state, "docker")) == tries
