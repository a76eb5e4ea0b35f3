"""Checks of the checkpoints and their tokenizers."""

import json
from pathlib import Path

import pytest
from tests.checks.deployments import CHECKPOINTS, changed, checkpoint, serious

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
        ("demo-value", {"head": "classification"}, "verifier.checkpoint", "head is 'classificati"),
        ("demo-classification", {"format": "rlhflow", "template": None}, "verifier", "'rlhflow'"),
        ("demo", {"format": "skywork-o1-prm"}, "verifier", "judges with labels"),
    ],
)
def test_a_head_and_a_deployment_that_disagree(base, changes, where, words):
    findings = serious(changed(base, {f"verifier.{key}": v for key, v in changes.items()}))
    assert any(finding.where == where and words in finding.what for finding in findings)


def test_a_generator_with_a_head_instead_of_a_language_head(tmp_path):
    folder = checkpoint(tmp_path, "demo-value")
    findings = serious(changed("demo", {"generator.checkpoint": str(folder)}))
    assert any("which cannot generate" in finding.what for finding in findings)


def replaced(pattern, content):
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


VOCABULARY = json.loads((CHECKPOINTS / "demo-generator" / "tokenizer.json").read_text())["model"]
VOCABULARY["vocab"][list(VOCABULARY["vocab"])[-1]] = 5000  # beyond the model, and no more tokens
TRUNCATION = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"normalizer": replaced(r"\d", "0")}, "'1 + 1 = 2' and '1 + 1 = 3' the same ids"),
        ({"normalizer": replaced(r"[\s\S]", "")}, "has no ids for '1 + 1 = 2'"),
        (
            {"normalizer": {"type": "Lowercase"}},
            "loses text: 'f(X) = 2*x^2' comes back from its ids as 'f(x) = 2*x^2'",
        ),
        ({"model": VOCABULARY}, "has ids up to 5000, but the model's vocab_size"),
        ({"truncation": TRUNCATION}, None),  # it changes nothing of what is sent
    ],
)
def test_a_tokenizer_that_is_not_its_models_or_loses_text(tmp_path, parts, what):
    folder = checkpoint(tmp_path)
    file = folder / "tokenizer.json"
    whole = json.loads(file.read_text()) | parts
    file.unlink()  # it may be a link to the bundled one
    file.write_text(json.dumps(whole))
    findings = serious(changed("demo-gpu", {"generator.checkpoint": str(folder)}))
    assert bool(findings) == bool(what)
    where = {"generator", f"generator.checkpoint: {file}"}
    assert not what or any(what in f.what and f.where in where for f in findings)


@pytest.mark.parametrize("base", ["demo", "demo-gpu"])
def test_weights_that_are_all_no_numbers(tmp_path: Path, base: str):
    folder = checkpoint(tmp_path)
    file = folder / "model.safetensors"
    data = file.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    file.write_bytes(data[:header] + b"\xff" * (len(data) - header))
    (finding,) = serious(changed(base, {"generator.checkpoint": str(folder)}))
    assert finding.where == "generator.checkpoint"
    assert f"{file}: tensor 'model." in finding.what
    assert "no numbers" in finding.what
