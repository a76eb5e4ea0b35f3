"""Checks that generator and verifier belong together, and the verifier's format to its labels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checks.deployments import CHECKPOINTS, LLAMA, changed, checkpoint, serious

from tts.build.spec import load_deployment
from tts.checks import lint, models

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
