"""A first run from the machine to the report, on stand-ins of docker, nvidia-smi and the server."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from tests.checks.first_run.planned_log import planned_log
from tests.serving.facts import LAUNCH_FILE
from typer.testing import CliRunner

from tts.build import paths
from tts.build.builder import BuildReport
from tts.build.errors import BuildError
from tts.build.findings import Finding
from tts.build.spec import load_deployment
from tts.build.tensorrt.memory_plan import plan_memory
from tts.checks.first_run import steps
from tts.cli import app
from tts.serving.repository import render as repository

PLAY = Path(__file__).parents[2] / "serving" / "stand_ins" / "play.py"
SMI = "#!/bin/sh\necho '0, NVIDIA GeForce RTX 4090, 24564, 300, {driver}, {capability}'\n"
DOCKER = """#!/bin/sh
case "$1" in
    version) echo 28.1 ;;
    image) {image} ;;
    *) exec {play} "$@" ;;
esac
"""


class Machine:
    """What PATH holds, and what the server that docker starts says and does."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.stand_ins = folder / "bin", folder / "stand-ins"
        for made in (self.bin, self.stand_ins):
            made.mkdir()
        shutil.copy(LAUNCH_FILE, self.stand_ins)
        self._program(self.stand_ins / "docker", f"#!{sys.executable}\n" + PLAY.read_text())
        self.play("serve")

    @staticmethod
    def _program(file: Path, text: str) -> None:
        file.write_text(text)
        file.chmod(0o755)

    def has_gpu(self, driver: str = "590.44.01", capability: str = "8.9") -> None:
        text = SMI.format(driver=driver, capability=capability)
        self._program(self.bin / "nvidia-smi", text)

    def has_docker(self, image: str = "echo sha256:1") -> None:
        text = DOCKER.format(play=self.stand_ins / "docker", image=image)
        self._program(self.bin / "docker", text)

    def play(self, scenario: str, log: list[str] | None = None) -> None:
        (self.stand_ins / "scenario").write_text(scenario)
        (self.stand_ins / "log").write_text("\n".join(log or []))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without a GPU and without docker; engines are there as soon as they are built."""
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(made.bin), "/usr/bin", "/bin"]))
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NVIDIA_TRITON_SERVER_VERSION", raising=False)
    monkeypatch.setattr(repository, "require_current", lambda deployment: {})

    def build(deployment):
        for role in deployment.engines():
            folder = paths.engine_dir(deployment.name, role)
            folder.mkdir(parents=True)
            (folder / "config.json").write_text("{}")
            log = folder.with_name(f"{role}-build.log")
            log.write_text("# tts: other than known of TensorRT-LLM 1.2.1: a new flag\nchatter\n")
            yield BuildReport(role, folder, "built", 1.0, 10**6, None, "read back")

    monkeypatch.setattr(steps, "build_engines", lambda asked, say: list(build(asked)))
    return made


@pytest.fixture
def with_gpu(machine):
    """The same machine with a GPU and with docker."""
    machine.has_gpu()
    machine.has_docker()
    return machine


def doctor(*arguments, name="demo-gpu"):
    """Exit code, output, report."""
    done = CliRunner().invoke(app, ["doctor", *(arguments or [name, "--first-run"])])
    report = paths.runs_dir() / f"first-run-{name}.md"
    said = f"{done.output}{done.exception or ''}"
    return done.exit_code, said, report.read_text() if report.exists() else ""


def log(**otherwise):
    demo = load_deployment("demo-gpu")
    return planned_log(demo, plan_memory(demo), **otherwise)


def test_without_a_gpu_it_does_what_needs_none_and_says_so(machine):
    code, output, report = doctor()
    assert code == 3
    for line in (
        "not here  GPU: no NVIDIA GPU",
        "ok        lint: 0 errors",
        "ok        memory plan: fits",
        "not here  engines: not tried: see GPU, driver, container",
        "the rest needs another",
    ):
        assert line in output
    for part in ("not tried: see GPU, driver, container, engines", "pool, tokens", "docker run"):
        assert part in report
    assert not paths.built_dir("demo-gpu").exists()


def test_a_first_run_as_expected(with_gpu):
    with_gpu.play("serve", log())
    code, output, report = doctor()
    assert code == 0, output
    assert "Everything is as expected. Next: tts bench demo-gpu" in output
    for what in ("GPU", "driver", "container", "engines", "server", "KV pools"):
        assert f"ok        {what}: " in output
        assert f"| ok | {what} |" in report
    assert "| 0 | NVIDIA GeForce RTX 4090 | 24564 | 300 | 590.44.01 | 8.9 |" in report
    assert "Allocated 0.27 GiB for max tokens in paged KV cache (65536)." in report
    assert "# tts: other than known of TensorRT-LLM 1.2.1: a new flag" in report
    assert "chatter" not in report
    calls = (with_gpu.stand_ins / "calls.jsonl").read_text()
    assert '["docker", "rm", "--force"' in calls  # nothing is left running


def test_a_pool_that_was_cut_short_fails_it(with_gpu):
    with_gpu.play("serve", log(cut={"verifier": 100}, transfer=2**29))
    code, output, report = doctor()
    assert code == 1
    assert "wrong     KV pools: " in output
    assert "62,336 tokens" in output
    assert "65,536 tokens (verifier)" in output
    assert "wrong     KV transfer buffers: 1536 MiB" in output
    assert "please report it with this file" in output
    assert "| wrong | KV transfer buffers |" in report


@pytest.mark.parametrize("scenario", ["out of memory", "other gpu", "unknown"])
def test_a_server_that_does_not_start_is_a_step_that_went_wrong(with_gpu, scenario):
    with_gpu.play(scenario)
    code, output, report = doctor()
    assert code == 1
    assert "wrong     server: " in output
    assert "triton.log" in output
    assert "## Of triton.log" in report


def test_what_a_failed_start_logged_of_memory_is_compared_all_the_same(with_gpu):
    with_gpu.play("dies", log(transfer=2**29))
    code, output, _ = doctor()
    assert code == 1
    assert "wrong     server: " in output
    assert "wrong     KV transfer buffers: 1536 MiB" in output
    with_gpu.play("no daemon")
    (with_gpu.stand_ins / "log").unlink()
    shutil.rmtree(paths.built_dir("demo-gpu"))
    _, output, report = doctor()
    assert "KV transfer buffers" not in output
    assert "mPreAllocBufferSize" not in report


def test_a_build_that_fails_or_is_interrupted_leaves_its_report(with_gpu, monkeypatch):
    def fail(deployment, say):
        raise BuildError("generator: building the engine failed (check). HF_TOKEN=hf_abcdefgh12")

    def interrupt(deployment, say):
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "build_engines", interrupt)
    code, _, report = doctor()
    assert code == 130
    assert "| ok | memory plan |" in report
    monkeypatch.setattr(steps, "build_engines", fail)
    code, output, report = doctor()
    assert code == 1
    assert "not here  server: not tried: see engines" in output
    assert "building the engine failed" in report
    assert "hf_abcdefgh12" not in report


@pytest.mark.parametrize(
    ("gpu", "docker", "lines"),
    [
        (
            {"capability": "9.0"},
            None,
            ["wrong     GPU: ", "wrong     container: docker is not installed"],
        ),
        ({"driver": "550.1"}, None, ["note      driver: "]),
        (
            {},
            "exit 1",  # the image is not here yet
            [
                "note      container: docker 28.1 without it",
                "docker pull nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3",
            ],
        ),
    ],
)
def test_another_gpu_or_driver_and_what_is_missing_are_told(machine, gpu, docker, lines):
    machine.has_gpu(**gpu)
    if docker:
        machine.has_docker(docker)
    _, output, _ = doctor()
    for line in lines:
        assert line in output


def test_missing_checkpoints_come_with_their_download(machine, tmp_path):
    machine.has_gpu()
    code, output, report = doctor(name="llama-1b-prm-8b-h100-bf16")
    assert code == 1
    assert "wrong     checkpoints: without Llama-3.2-1B-Instruct and Llama3.1-8B" in output
    assert "hf download meta-llama/Llama-3.2-1B-Instruct" in output
    assert report
    assert "Solve the following math problem" not in report
    own = (paths.deployments_dir() / "demo-gpu.yaml").read_text()
    file = tmp_path / "own.yaml"
    file.write_text(re.sub(r"checkpoint: \S+", "checkpoint: nowhere", own))
    _, output, _ = doctor(str(file), "--first-run")
    assert "wrong     checkpoints: without nowhere" in output
    assert "Download them, or set `checkpoint` to where they are." in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "--first-run"], "target openvino; a first run is for target tensorrt"),
        (["--first-run"], "--first-run needs a deployment"),
        (["nowhere", "--first-run"], "no deployment 'nowhere'"),
    ],
)
def test_a_wrong_command_line_is_a_sentence(machine, arguments, words):
    code, said, _ = doctor(*arguments)
    assert code != 0
    assert words in said


def test_what_lint_finds_is_counted_and_is_in_the_report(machine, monkeypatch):
    found = [
        Finding("is too small", "verifier.checkpoint", "a step does not fit", "Raise it."),
        Finding("is large", "generator.in_flight_requests", "they wait", "Lower it.", "warning"),
    ]
    monkeypatch.setattr(steps, "lint", lambda deployment, checks: found)
    code, output, report = doctor()
    assert code == 1
    assert "wrong     lint: 1 errors, 1 warnings, 0 not checked" in output
    assert "tts lint demo-gpu explains each." in output
    assert "error: verifier.checkpoint: is too small (a step does not fit). Raise it." in report
