"""Steps that fail, are killed or interrupted."""

import os
import signal
import subprocess
import threading
import time

import pytest
from tests.build.stand_in_build import (
    build,
    calls,
    conversions,
    nothing_half_built,
    option_of,
)

from tts.base.errors import BuildError
from tts.build.tensorrt import contract

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
    (
        "compile",
        "IRuntime: expecting compute 9.0 got compute 8.9",
        "built for GPUs of",
    ),
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
    [
        ({"isolated": "RuntimeError: something else"}, 1),
        ({"at": "check", "say": MPI}, 2),
    ],
)
def test_only_for_mpi_a_step_is_tried_again_and_only_once(deploy, state, misbehave, how, tries):
    misbehave(**how)
    with pytest.raises(BuildError):
        build(deploy())
    assert len(calls(state, "docker")) == tries
