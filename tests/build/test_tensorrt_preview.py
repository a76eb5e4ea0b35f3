"""The commands that a build would run, printed."""

import subprocess

import pytest

from tts.base import paths
from tts.base.errors import TtsError
from tts.build.builder import preview_build
from tts.build.spec import Deployment


def test_dry_run_needs_nothing(deploy, state, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/nowhere")
    data = deploy(max_seq_len=512).model_dump()
    data["generator"]["checkpoint"] = tmp_path / "Llama-3.2-1B-Instruct"
    data["verifier"]["checkpoint"] = tmp_path / "Llama3.1-8B-PRM-Deepseek-Data"
    text = "\n".join(preview_build(Deployment.model_validate(data)))
    assert "# label tokens: '+' is 10, '-' is 12 (published)" in text
    assert text.count("docker run") == 6
    assert "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3 trtllm-build" in text
    assert not (state / "calls.jsonl").exists()
    data["generator"]["step_delimiter"] = "w5"  # the tokenizer knows no white space
    present = "\n".join(preview_build(deploy()))
    assert "# label tokens: '+' is 3, '-' is 4" in present
    data["generator"]["checkpoint"] = tmp_path / "unknown"
    with pytest.raises(TtsError, match="unknown"):
        preview_build(Deployment.model_validate(data))


def test_the_printed_commands_build_the_engine(deploy, state, tmp_path):
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
