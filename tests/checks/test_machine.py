"""What is said of this machine with one deployment in mind."""

import pytest
from tests.bundled import BUNDLED

from tts.build.openvino import threads
from tts.build.spec import load_deployment
from tts.checks import machine
from tts.checks.machine import diagnose


def seen(deployment):
    return {each.what: each for each in diagnose(deployment)}


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    for module in (threads, machine):
        monkeypatch.setattr(module, "usable_cores", lambda: 4)


def stating(count):
    demo = load_deployment("demo")
    generator = demo.generator.model_copy(update={"threads": count})
    return demo.model_copy(update={"generator": generator})


def test_the_threads_of_both_engines_and_whence_they_are():
    found = seen(stating(3))
    assert found["threads"].state == "ok"
    assert found["threads"].found == "generator 3 (stated), verifier 1 (default); 4 cores"
    assert not [what for what in found if what.startswith("deployment ") and "demo" not in what]


def test_more_threads_than_cores_are_advised_against():
    threads = seen(stating(4))["threads"]
    assert threads.state == "note"
    assert "verifier.threads out" in threads.advice


def test_a_deployment_for_gpus_that_are_not_here_says_what_can_be_done_without():
    found = seen(load_deployment("demo-gpu").model_copy(update={"name": "elsewhere"}))
    assert "threads" not in found
    (note,) = [each for what, each in found.items() if what.startswith("deployments for")]
    assert note.found == "elsewhere"


def test_of_the_bundled_deployments_those_for_gpus_that_are_not_here_are_apart():
    found = seen(None)
    (elsewhere,) = [
        each.found for what, each in found.items() if what.startswith("deployments for")
    ]
    for name, deployment in BUNDLED.items():
        is_for_gpus = bool(deployment.tensorrt or deployment.gpu)
        assert (name in elsewhere.split(", ")) == is_for_gpus
        assert (f"deployment {name}" in found) != is_for_gpus


def test_what_no_deployment_can_be_built_without_is_said_once(monkeypatch):
    monkeypatch.setattr(machine, "_version", lambda package: None)
    found = seen(None)
    assert found["CPU engine"].state == "missing"
    assert "deployment demo" not in found
