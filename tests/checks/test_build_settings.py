"""Checks of what is built: calibration samples, and the command that compiles an engine."""

from pathlib import Path

from tests.checks.deployments import changed, serious

from tts.checks import lint


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
