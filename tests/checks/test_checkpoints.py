"""Checks of the checkpoints and their tokenizers."""

import json
from pathlib import Path

import pytest
from tests.checks.deployments import changed, checkpoint, serious

from tts.checks import lint


@pytest.mark.parametrize("base", ["demo", "demo-gpu"])
def test_broken_checkpoints(tmp_path: Path, base: str):
    folder = checkpoint(tmp_path)
    deployment = changed(base, {"generator.checkpoint": str(folder)})
    assert serious(deployment) == []
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["Other"]}))
    (finding,) = serious(deployment)
    assert finding.where == "generator.checkpoint"
    assert "Other" in finding.what
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"\0" * 10)
    (finding,) = serious(deployment)
    assert "model.safetensors" in finding.what
    (folder / "model.safetensors").unlink()
    assert serious(deployment) == []
    assert any("has no weights" in finding.what for finding in lint(deployment))
    (folder / "tokenizer.json").write_text("{}")
    assert {finding.where for finding in serious(deployment)} == {"generator"}


def test_a_tokenizer_of_another_model_and_no_chat_template(tmp_path: Path):
    folder = checkpoint(tmp_path)
    deployment = changed("demo-gpu", {"generator.checkpoint": str(folder)})
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": None}))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (finding,) = serious(deployment)
    assert "has no chat template" in finding.what
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 5}))
    assert any("vocab_size is 5" in finding.what for finding in serious(deployment))


@pytest.mark.parametrize(
    ("base", "changes", "where", "words"),
    [
        (
            "demo-value",
            {"verifier.head": "classification"},
            "verifier.checkpoint",
            "verifier.head is 'classification'",
        ),
        (
            "demo-classification",
            {"verifier.format": "rlhflow", "verifier.template": None},
            "verifier",
            "verifier.format is 'rlhflow'",
        ),
        ("demo", {"verifier.format": "skywork-o1-prm"}, "verifier", "judges with labels"),
    ],
)
def test_a_head_and_a_deployment_that_disagree(
    base: str, changes: dict[str, object], where: str, words: str
):
    findings = serious(changed(base, changes))
    assert any(finding.where == where and words in finding.what for finding in findings)


def test_a_generator_with_a_head_instead_of_a_language_head(tmp_path: Path):
    folder = checkpoint(tmp_path, "demo-value")
    findings = serious(changed("demo", {"generator.checkpoint": str(folder)}))
    assert any("which cannot generate" in finding.what for finding in findings)
