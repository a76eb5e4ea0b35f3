"""Checks of both checkpoints, and that the two models belong together."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checks.deployments import CHECKPOINTS, LLAMA, changed, checkpoint, serious

from tts.build.spec import load_deployment
from tts.checks import lint, models


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


PAIR = {role: CHECKPOINTS / f"demo-{role}" for role in ("generator", "verifier")}


@pytest.mark.parametrize("base", ["demo", "demo-gpu", LLAMA])
def test_exchanged_checkpoints_are_told_by_their_names(base):
    generator, verifier = load_deployment(base).engines().values()
    turned = {"generator": verifier.checkpoint, "verifier": generator.checkpoint}
    changes = {f"{role}.checkpoint": str(folder) for role, folder in turned.items()}
    (finding,) = lint(changed(base, changes), [models.exchanged])
    assert finding.where == "generator.checkpoint"
    assert "is a verifier by its name" in finding.what
    assert "Exchange generator.checkpoint and verifier.checkpoint" in finding.fix


def test_a_generator_in_the_verifiers_place_is_doubted_unless_it_is_a_judge():
    judge = {"verifier.checkpoint": str(PAIR["generator"])}
    (finding,) = lint(changed("demo", judge), [models.exchanged])
    assert finding.where == "verifier.checkpoint"
    template = {"head": "{question} ", "answer": "? ", "turn": "\n"}
    custom = judge | {"verifier.format": "custom", "verifier.template": template}
    assert lint(changed("demo", custom), [models.exchanged]) == []
    assert "verifier.format prompted" in finding.fix
    prompt = "{question}\n{steps}\n{step}\nRight?"
    asked = judge | {"verifier.format": "prompted", "verifier.prompt": prompt}
    assert lint(changed("demo", asked), [models.exchanged]) == []
    answers = asked | {"verifier.labels": ["No", "Yes"]}
    (turned,) = models._labels(changed("demo", answers).verifier)
    assert "turned round" in turned.why


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("Qwen2.5-Math-PRM-7B", "verifier"),
        ("math-shepherd-mistral-7b-prm", "verifier"),
        ("Skywork-Reward-Llama-3.1-8B", "verifier"),
        ("Llama-3.2-3B-Instruct", "generator"),
        ("Mistral-7B-Instruct-v0.3", "generator"),
        ("Llama-3.1-8B-PRM-Instruct", "verifier"),
        ("charm-normal-storm", None),
        ("my-model", None),
    ],
)
def test_a_name_tells_what_a_checkpoint_is_for_or_nothing(tmp_path, name, role):
    folder = tmp_path / name
    assert models.is_named_verifier(folder) == (role == "verifier")
    assert models.is_named_generator(folder) == (role == "generator")


@given(written=st.integers(32, 512), read=st.integers(32, 512))
def test_a_verifier_that_reads_less_than_is_written_is_doubted(written: int, read: int):
    lengths = {"generator.max_seq_len": written, "verifier.max_seq_len": read}
    found = lint(changed("demo", lengths), [models.verifier_length])
    assert bool(found) == (read < written)
    for finding in found:
        assert finding.where == "verifier.max_seq_len"
        assert finding.what.startswith(f"is {read}, but the generator writes")
        assert f"at least {written}" in finding.fix


@pytest.mark.parametrize(
    ("changes", "where", "what"),
    [
        ({"labels": ["-", "+"]}, "labels", "has '-' as the positive"),
        ({"labels": ["no", "YES"]}, "labels", "has 'no' as the positive"),
        ({"labels": ["1", "0"]}, "labels", "are '1' and '0', but"),
        ({"format": "math-shepherd"}, "format", "was trained with rlhflow"),
    ],
)
def test_labels_and_format_that_the_verifier_was_not_trained_with(changes, where, what):
    (finding,) = serious(changed(LLAMA, {f"verifier.{key}": v for key, v in changes.items()}))
    assert (finding.severity, finding.where) == ("warning", f"verifier.{where}")
    assert what in finding.what


def test_a_step_tag_that_is_a_label():
    changes = {"verifier.format": "math-shepherd", "verifier.step_tag": "+"}
    (finding,) = lint(changed("demo", changes), [models.labels])
    assert finding.where == "verifier.step_tag"
    assert "'ки'" in finding.fix


def test_labels_that_are_no_tokens_have_one_finding(tmp_path):
    folder = checkpoint(tmp_path, "demo-verifier")
    given = {"verifier.checkpoint": str(folder), "verifier.labels": ["good", "-"]}
    (finding,) = serious(changed("demo", given))
    assert "'good' is" in finding.what
