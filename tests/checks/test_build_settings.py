"""Checks of what is built: calibration samples, and the command that compiles an engine."""

from pathlib import Path

from tests.checks.deployments import LLAMA, changed, serious

from tts.build.spec import load_deployment
from tts.build.tensorrt.commands import steps
from tts.build.tensorrt.model_shape import read_model
from tts.build.tensorrt.target import workspace
from tts.checks import build_settings, lint


def test_calibration_folders(tmp_path: Path):
    calibration = {"kv_precision": "fp8", "calibration": {"dataset": str(tmp_path / "samples")}}
    base = "llama-1b-prm-8b-h100-fp8"
    deployment = changed(base, {"generator.tensorrt": calibration})
    assert any("no folder" in finding.what for finding in lint(deployment))
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "load.py").touch()
    (finding,) = serious(deployment)
    assert "holds Python code (load.py)" in finding.what
    (finding,) = serious(
        changed(base, {"generator.tensorrt": {"calibration": {"dataset": "my/set"}}})
    )
    assert "neither a set that is known" in finding.what


def test_a_command_at_fault_is_told_once():
    deployment = load_deployment(LLAMA)
    model = read_model(deployment.verifier.checkpoint)
    work = workspace(deployment, "verifier")
    command = list(steps(deployment, "verifier", model, work)[-1].command)
    assert list(build_settings.command_findings(deployment, "verifier", model, command)) == []
    command.remove("--gather_generation_logits")
    (finding,) = build_settings.command_findings(deployment, "verifier", model, command)
    assert "--gather_generation_logits is missing" in finding.what
    command[command.index("--max_batch_size")] = "--batch"
    problems = [
        f.what for f in build_settings.command_findings(deployment, "verifier", model, command)
    ]
    assert problems == [
        "--batch is not a flag of trtllm-build 1.2.1",
        "--max_batch_size is missing",
    ]
