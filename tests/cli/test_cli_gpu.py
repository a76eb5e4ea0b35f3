"""The commands on deployments for NVIDIA GPUs, on machines with and without one."""

import pytest
from tests.bundled import FOR_GPUS, TENSORRT
from tests.cli.runner import LLAMA, tts

from tts.base import paths
from tts.checks import machine as diagnosis

HEADED = "llama-1b-skywork-1.5b-h100-bf16"
"""What is served holds the biases of its verifier's head, and so needs the checkpoint."""
SMI = """#!/bin/sh
echo "0, NVIDIA H100 80GB HBM3, 81559, 0, {driver}, 9.0"
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of its own, on a machine that has neither docker nor a GPU."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("NVIDIA_TRITON_SERVER_VERSION", raising=False)
    diagnosis._nvidia_gpus.cache_clear()
    yield tmp_path
    diagnosis._nvidia_gpus.cache_clear()


def has_gpu(home, driver="590.44.01", **programs):
    (home / "bin").mkdir()
    for name, text in {"nvidia-smi": SMI.format(driver=driver), **programs}.items():
        (home / "bin" / name).write_text(text)
        (home / "bin" / name).chmod(0o755)


@pytest.mark.parametrize("name", sorted({*FOR_GPUS} - {HEADED}))
def test_everything_but_the_engines_can_be_made_without_a_gpu(home, name):
    done = tts("build-engines", name, "--dry-run")
    assert done.code == 0
    if name not in TENSORRT:
        assert "docker run" not in done.out
        for command in ("render", "serve"):
            done = tts(command, name)
            assert (done.code, "with server.kind: embedded" in done.err) == (2, True)
        return
    assert done.out.count("docker run") == 6
    manifests = home / "manifests"
    done = tts("render", name, "--manifests", manifests)
    assert done.code == 0
    assert f"model repository: {paths.repository_dir(name)}" in done.out
    assert "Not built on this machine: generator and verifier." in done.err
    assert (manifests / "kubernetes.yaml").is_file()
    done = tts("serve", name, "--dry-run")
    assert done.code == 0
    assert done.out.startswith("docker run ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("bench", LLAMA),
        ("bench", LLAMA, "--strategy", "all"),
        ("bench", "demo-gpu"),
        ("solve", "What is 1 + 1?", "--deployment", LLAMA),
        ("serve", LLAMA),
    ],
)
def test_what_needs_a_gpu_says_so_first(home, arguments):
    done = tts(*arguments)
    assert (done.code, done.out) == (1, "")
    for words in ("runs on an NVIDIA GPU", "there is no nvidia-smi", "tts plan"):
        assert words in done.err


def test_a_missing_download_is_named_with_its_command(home):
    done = tts("build-engines", "llama-8b-prm-8b-2xh100-bf16")
    assert done.code == 2
    for model in ("meta-llama/Llama-3.1-8B-Instruct", "RLHFlow/Llama3.1-8B-PRM-Deepseek-Data"):
        folder = paths.deployments_dir().parent / "checkpoints" / model.partition("/")[2]
        assert f"hf download {model} --local-dir {folder}" in done.err


def test_doctor_without_a_gpu(home):
    out = tts("doctor").out
    assert "NVIDIA GPU: none found" in out
    assert "docker" not in out
    assert f"deployment {LLAMA}: for NVIDIA GPUs" in tts("doctor", LLAMA).out


def test_doctor_with_a_gpu_tells_its_deployments_from_others(home):
    has_gpu(home, docker="")
    out = tts("doctor", LLAMA).out
    assert "NVIDIA H100 80GB HBM3, 81559 MiB, compute capability 9.0" in out
    assert "NVIDIA driver: 590.44.01" in out
    assert f"docker: {home / 'bin' / 'docker'}" in out
    assert f"deployment {LLAMA}: There is no checkpoint folder" in out
    assert "for other NVIDIA GPUs" in tts("doctor", "demo-gpu").out


def test_doctor_points_out_an_old_driver_and_a_missing_docker(home):
    has_gpu(home, driver="550.54.15")
    out = tts("doctor").out
    assert "note      NVIDIA driver: 550.54.15" in out
    assert "590.44.01 or later" in out
    assert "docker: absent" in out


def test_doctor_names_folders_that_may_not_be_written_to(home, monkeypatch):
    (home / "home").mkdir()
    out = tts("doctor").out
    assert f"ok        runs: {paths.runs_dir()} (" in out
    monkeypatch.setattr(diagnosis.os, "access", lambda folder, mode: False)
    out = tts("doctor").out
    for what, folder in (("engines", paths.built_dir("x").parent), ("runs", paths.runs_dir())):
        assert f"missing   {what}: {folder} is not writable" in out
    assert "Set TTS_HOME to a folder that you may write to." in out


def test_doctor_knows_the_containers(home, monkeypatch):
    has_gpu(home)
    monkeypatch.setenv("NVIDIA_TRITON_SERVER_VERSION", "26.08")
    assert "note      NVIDIA container: inside 26.08" in tts("doctor").out
    monkeypatch.setenv("NVIDIA_TRITON_SERVER_VERSION", "26.07")
    assert "ok        NVIDIA container: inside 26.07" in tts("doctor").out


def test_a_driver_that_does_not_answer_is_no_gpu(home):
    has_gpu(home)
    (home / "bin" / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert "NVIDIA GPU: none found" in tts("doctor").out
