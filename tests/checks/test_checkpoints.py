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


def with_tokenizer(folder: Path, **parts: object) -> None:
    """Exchange parts of a checkpoint's tokenizer.json."""
    file = folder / "tokenizer.json"
    whole = json.loads(file.read_text()) | parts
    file.unlink()  # it may be a link to the bundled one
    file.write_text(json.dumps(whole))


def replace(pattern: dict[str, str], content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def test_a_tokenizer_to_which_texts_are_the_same(tmp_path: Path):
    folder = checkpoint(tmp_path)
    with_tokenizer(folder, normalizer=replace({"Regex": r"\d"}, "0"))
    findings = serious(changed("demo-gpu", {"generator.checkpoint": str(folder)}))
    assert any(
        finding.where == "generator" and "'1 + 1 = 2' and '1 + 1 = 3' the same ids" in finding.what
        for finding in findings
    )


def test_a_tokenizer_that_reads_nothing(tmp_path: Path):
    folder = checkpoint(tmp_path)
    with_tokenizer(folder, normalizer=replace({"Regex": r"[\s\S]"}, ""))
    findings = serious(changed("demo-gpu", {"generator.checkpoint": str(folder)}))
    assert any("has no ids for '1 + 1 = 2'" in finding.what for finding in findings)


def test_a_tokenizer_that_loses_text(tmp_path: Path):
    folder = checkpoint(tmp_path)
    with_tokenizer(folder, normalizer={"type": "Lowercase"})
    found = lint(changed("demo-gpu", {"generator.checkpoint": str(folder)}))
    (finding,) = [finding for finding in found if "loses text" in finding.what]
    assert finding.what == "loses text: 'f(X) = 2*x^2' comes back from its ids as 'f(x) = 2*x^2'"
    assert finding.where == f"generator.checkpoint: {folder / 'tokenizer.json'}"


def test_a_tokenizer_with_an_id_beyond_the_model_and_no_more_tokens(tmp_path: Path):
    folder = checkpoint(tmp_path)
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    model["vocab"] = model["vocab"] | {list(model["vocab"])[-1]: 5000}
    with_tokenizer(folder, model=model)
    findings = serious(changed("demo-gpu", {"generator.checkpoint": str(folder)}))
    assert any("has ids up to 5000, but the model's vocab_size" in f.what for f in findings)


def test_truncation_and_padding_of_a_tokenizer_change_nothing(tmp_path: Path):
    folder = checkpoint(tmp_path)
    deployment = changed("demo-gpu", {"generator.checkpoint": str(folder)})
    before = lint(deployment)
    truncation = {
        "direction": "Right",
        "max_length": 1,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    with_tokenizer(folder, truncation=truncation)
    assert lint(deployment) == before


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
