"""Checks of prompts, end tokens, labels and stop words."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.checks.deployments import CHECKPOINTS, LLAMA, changed, checkpoint, serious

from tts.checks import lint


def test_labels_of_an_unknown_verifier_are_doubted_and_noted():
    deployment = changed(LLAMA, {"verifier.labels": ["good", "bad"]})
    (finding,) = serious(deployment)
    assert (finding.severity, finding.where) == ("warning", "verifier.labels")
    assert any("'good' and 'bad' are not known" in f.what for f in lint(deployment))


@pytest.mark.parametrize(("tokens", "severe"), [(40, []), (320, ["verifier.critique.max_tokens"])])
def test_there_is_room_for_the_longest_critique(tokens: int, severe: list[str]):
    checkpoint = str(CHECKPOINTS / "demo-generator")
    critique = {"max_tokens": tokens, "verdict": {"after": "="}}
    given = {"checkpoint": checkpoint, "format": "critique", "critique": critique}
    given |= {"prompt": "{question} {steps} {step}", "in_flight_requests": 8, "max_seq_len": 320}
    keys = {f"verifier.{name}": value for name, value in given.items()}
    keys |= {"verifier.labels": {}, "verifier.in_flight_tokens": None}
    assert [finding.where for finding in serious(changed("demo", keys))] == severe


def set_json(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize(
    "content",
    [
        "''",
        "'What is 1 + 1?'",
        "message['content'][:100]",
        "(message['content'] | upper)",
        "(message['content'] | escape)",
        "(message['content'] | replace('\\n', ' '))",
    ],
)
def test_a_chat_template_that_drops_or_changes_the_question(tmp_path: Path, content: str):
    folder = checkpoint(tmp_path)
    deployment = changed("demo", {"generator.checkpoint": str(folder)})
    template = "{% for message in messages %}<|user|>{{ " + content + " }}{% endfor %}<|assistant|>"
    set_json(folder / "tokenizer_config.json", chat_template=template)
    (finding,) = serious(deployment)
    assert finding.where == "generator.checkpoint"
    assert "drops or changes the last message" in finding.what
    assert "chat template that the checkpoint was published with" in finding.fix


@pytest.mark.parametrize("template", ["raises", "drops"])
def test_a_system_prompt_needs_no_role_in_the_chat_template(tmp_path: Path, template: str):
    folder = checkpoint(tmp_path)
    given = {"generator.checkpoint": str(folder), "generator.system_prompt": "Think aloud."}
    if template == "drops":
        source = "<|user|>{{ messages[-1]['content'] }}<|assistant|>"
        set_json(folder / "tokenizer_config.json", chat_template=source)
    assert serious(changed("demo", given)) == []


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("role", ["generator", "verifier"])
@pytest.mark.parametrize(
    ("value", "what"),
    [
        (1, "is 1, without 5, the tokenizer's eos_token '<|eot_id|>'"),
        ([1, 0], "is 1 and 0, without 5"),
        ([5, 17], "has 17, which is the ordinary text '+'"),
        ([1, 5], ""),
        (None, ""),
    ],
)
def test_an_end_token_that_is_not_the_tokenizers(
    tmp_path: Path, role: str, name: str, value: Any, what: str
):
    folder = checkpoint(tmp_path, f"demo-{role}")
    set_json(folder / name, eos_token_id=value)
    found = serious(changed("demo", {f"{role}.checkpoint": str(folder)}))
    assert [finding.where for finding in found] == [f"{folder / name}: eos_token_id"] * bool(what)
    for finding in found:
        assert what in finding.what
        assert "or set eos_token_id to" in finding.fix


@pytest.mark.parametrize(
    ("base", "thinking", "what"),
    [
        ("demo", {"budget_tokens": 100}, "has budget_tokens, but the chat template of"),
        ("demo-thinking", {"closing_text": "So"}, "is 'So', which must have '</think>' once"),
        ("demo-thinking", {"closing_text": "</think>" * 2}, "which must have '</think>' once"),
        ("demo-thinking", {"budget_tokens": 1}, "budget_tokens is 1, less than the"),
        ("demo-thinking", {"budget_tokens": 100}, ""),
    ],
)
def test_thinking_that_no_run_could_begin_with_is_an_error(base: str, thinking: Any, what: str):
    findings = serious(changed(base, {"generator.thinking": thinking}))
    assert [finding.where for finding in findings] == ["generator.thinking"] * bool(what)
    assert all(what in finding.what for finding in findings)


@pytest.mark.parametrize(
    ("text", "places"),
    [('{foo} {Bar} \\boxed{answer} x_{n} {"a": 1}', ["{foo}"]), ("\\{a\\} $2^{n}$ {{x}}", [])],
)
def test_a_place_that_nothing_fills_is_doubted(text: str, places: list[str]):
    prompt = f"{text} {{question}} {{steps}} {{step}}"
    findings = serious(changed("demo-prompted", {"verifier.prompt": prompt}))
    assert [finding.what.partition(",")[0] for finding in findings] == [f"has {p}" for p in places]


@pytest.mark.parametrize(
    ("part", "thinking", "warned"),
    [
        ("{% if enable_thinking %}on{% endif %}", {}, "has enable_thinking"),
        ("{{ reasoning_effort }}", {}, "has reasoning_effort"),
        ("{{ '<ponder:thinks>' if false }}", {}, "has <ponder:thinks>"),
        ("{{ '</think>' if false }}", {}, ""),
        ("{{ '<think>' if enable_thinking }}", {}, ""),
        ("{% if enable_thinking %}on{% endif %}", {"enabled": False}, ""),
        ("{{ reasoning_effort }}", {"opens": "<a>", "closes": "</a>"}, ""),
    ],
)
def test_a_template_that_looks_as_if_its_model_thought_is_doubted(
    tmp_path: Path, part: str, thinking: dict[str, Any], warned: str
):
    folder = checkpoint(tmp_path)
    file = folder / "tokenizer_config.json"
    set_json(file, chat_template=json.loads(file.read_text())["chat_template"] + part)
    given = {"generator.checkpoint": str(folder), "generator.thinking": thinking}
    findings = [f for f in serious(changed("demo", given)) if "chat template" in f.where]
    assert [f.what.split(",")[0] for f in findings] == ([warned] if warned else [])
