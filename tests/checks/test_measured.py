"""Lint says what of a verifier has changed since its calibration was measured."""

from dataclasses import asdict

import pytest
from tests.checks.deployments import changed

from tts.build.builder import build_engines
from tts.build.inputs import Inputs, verifier_identity
from tts.build.spec import load_deployment
from tts.checks.after_build import ALL, calibration


def found(deployment):
    return [(each.severity, each.what) for each in calibration(Inputs(deployment))]


def measured_with(identity, **changes):
    measured = {"on": "a.jsonl", "problems": 1, "chains": 1, "date": "2026-11-28"}
    section = {"final": [[0, 0], [1, 1]], "measured": {**measured, "verifier": identity}}
    return changed("demo", {"verifier.calibration": section, **changes})


@pytest.fixture
def identity():
    demo = load_deployment("demo")
    build_engines(demo, roles=["verifier"], verify=False, say=lambda _: None)
    return asdict(verifier_identity(demo))


def test_what_is_the_same_says_nothing(identity):
    assert calibration in ALL
    asked_otherwise = asdict(verifier_identity(load_deployment("demo-prompted")))
    assert [name for name in identity if identity[name] == asked_otherwise[name]] == [
        "model",
        "template",
    ]
    for deployment in (load_deployment("demo"), measured_with(identity), measured_with({})):
        assert found(deployment) == []


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        (
            {"verifier.format": "math-shepherd", "verifier.step_tag": "+"},
            ["format", "template"],
        ),
        ({"verifier.labels": ["-", "+"]}, ["template"]),
    ],
)
def test_each_change_is_named(identity, changes, names):
    said = found(measured_with(identity, **changes))
    assert [severity for severity, _ in said] == ["warning"] * len(names)
    for (_, what), name in zip(said, names, strict=True):
        assert f"was measured on 2026-11-28 with another {name}, {identity[name]}" in what
    assert [what for _, what in found(measured_with(identity | {"model": "0"}))] == [
        f"was measured on 2026-11-28 with another model, 0; it is {identity['model']}"
    ]


def test_a_function_is_known_by_its_code(tmp_path):
    file = tmp_path / "prm.py"
    file.write_text("def score(question, steps):\n    return 0.5\n")
    deployment = load_deployment("demo")
    before = verifier_identity(deployment, f"{file}:score")
    assert before.format == "function"
    file.write_text("def score(question, steps):\n    return 0.25\n")
    assert verifier_identity(deployment, f"{file}:score").model != before.model
