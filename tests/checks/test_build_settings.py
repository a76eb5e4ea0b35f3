"""Checks of what is built: calibration samples, and the command that compiles an engine."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.checks.deployments import LLAMA, changed, serious

from tts.build.spec import load_deployment
from tts.build.tensorrt.commands import Step
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


def test_a_command_at_fault_is_told_once(monkeypatch: pytest.MonkeyPatch):
    deployment = load_deployment(LLAMA)
    assert list(build_settings.flags(deployment)) == []
    real = build_settings.steps

    def planned(*given: Any) -> list[Step]:
        made = real(*given)
        command = tuple(made[-1].command)
        at = command.index("--max_batch_size")
        return [
            *made[:-1],
            replace(made[-1], command=(*command[:at], "--batch", *command[at + 1 :])),
        ]

    monkeypatch.setattr(build_settings, "steps", planned)
    assert {finding.what for finding in build_settings.flags(deployment)} == {
        "--batch is not a flag of trtllm-build 1.2.1",
        "--max_batch_size is missing",
    }


def test_an_image_that_is_not_known_to_exist_is_doubted():
    base = "llama-1b-prm-8b-h100-llmapi"
    name = "nvcr.io/nvidia/tritonserver:{}-trtllm-python-py3"
    known, mine = changed(base, {"tensorrt.image": name.format("26.06")}), "mine/triton:26.11"
    assert list(build_settings.image(known)) == []
    assert list(build_settings.image(changed(base, {"tensorrt.image": mine}))) == []
    (finding,) = build_settings.image(changed(base, {"tensorrt.image": name.format("26.11")}))
    assert (finding.severity, finding.where) == ("warning", "tensorrt.image")
    assert "26.11-trtllm-python-py3 is not known to exist" in str(finding)
