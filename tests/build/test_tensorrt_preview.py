"""The commands that a build would run, printed."""

import subprocess
from pathlib import Path

import pytest
import yaml
from tests.build.stand_in_build import Deploy
from typer.testing import CliRunner

from tts.build import paths
from tts.build.builder import preview_build
from tts.build.errors import TtsError
from tts.build.spec import Deployment
from tts.cli import app


def test_dry_run_needs_nothing(
    deploy: Deploy, state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    data = deploy(max_seq_len=512).model_dump()
    data["generator"]["checkpoint"] = tmp_path / "Llama-3.2-1B-Instruct"
    data["verifier"]["checkpoint"] = tmp_path / "Llama3.1-8B-PRM-Deepseek-Data"
    text = "\n".join(preview_build(Deployment.model_validate(data)))
    assert "# label tokens: '+' is 10, '-' is 12 (published)" in text
    assert text.count("docker run") == 6
    assert "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3 trtllm-build" in text
    assert not (state / "calls.jsonl").exists()
    present = "\n".join(preview_build(deploy()))
    assert "# label tokens: '+' is 3, '-' is 4" in present
    data["generator"]["checkpoint"] = tmp_path / "unknown"
    with pytest.raises(TtsError, match="unknown"):
        preview_build(Deployment.model_validate(data))


def test_dry_run_on_the_command_line(
    deploy: Deploy, state: Path, tmp_path: Path, home: Path
) -> None:
    file = tmp_path / "test.yaml"
    data = deploy().model_dump(mode="json", exclude_none=True)
    data["generator"]["step_delimiter"] = "w5"  # its tokenizer knows no white space
    file.write_text(yaml.safe_dump(data))
    done = CliRunner().invoke(app, ["build-engines", str(file), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert done.output.count("docker run") == 6
    assert not home.exists()
    demo = CliRunner().invoke(app, ["build-engines", "demo", "--dry-run"])
    assert "# generator: export" in demo.output


def test_the_printed_commands_build_the_engine(deploy: Deploy, state: Path, tmp_path: Path) -> None:
    """What a user pastes is what a build runs."""
    lines = preview_build(deploy(precision="fp8", tensorrt={"tensor_parallel": 2}))
    script = tmp_path / "pasted.sh"
    script.write_text("set -e\n" + "\n".join(lines))
    subprocess.run(["/bin/sh", str(script)], check=True, capture_output=True)
    engine = paths.built_dir("test") / ".verifier.work" / "engine"
    assert {file.name for file in engine.iterdir()} == {
        "config.json",
        "rank0.engine",
        "rank1.engine",
    }
