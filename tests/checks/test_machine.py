"""What is said of this machine, of the last start of its server, and of a deployment on it."""

import pytest

from tts.base import paths
from tts.base.errors import BuildError
from tts.build.openvino import threads
from tts.build.spec import load_deployment
from tts.checks import machine
from tts.checks.findings import Observation
from tts.checks.machine import diagnose, last_start, verdict
from tts.serving.contract import start_log_forms
from tts.serving.server.triton import LOG


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
    elsewhere = load_deployment("demo-gpu").model_copy(update={"name": "elsewhere"})
    observations = diagnose(elsewhere)
    (note,) = [each for each in observations if each.what.startswith("deployment")]
    assert (note.what, note.state) == ("deployment elsewhere", "note")
    assert verdict(elsewhere, observations).startswith(
        "missing: its GPU. What fits on it: tts plan"
    )


def test_no_deployment_is_spoken_of_unless_one_is_named():
    observations = diagnose()
    assert not [each for each in observations if each.what.startswith("deployment")]
    assert verdict(None, observations) == 'ready: tts solve demo "Compute 12 + 30 - 5."'


@pytest.mark.parametrize("name", ["demo", "smollm2-llamacpp-cpu", "demo-beside-openai"])
def test_what_is_ready_is_told_with_the_command(name, monkeypatch):
    deployment = load_deployment(name)
    monkeypatch.setattr(machine, "require_current", lambda *deployment, anew: None)
    observations = [each for each in diagnose(deployment) if each.state != "missing"]
    assert verdict(deployment, observations) == f'ready: tts solve {name} "QUESTION"'


def test_what_is_missing_is_named_with_the_command_and_matters_not_on_a_gpu(monkeypatch):
    monkeypatch.setattr(machine, "_version", lambda package: None)
    observations = diagnose()
    assert verdict(None, observations).startswith("missing: CPU engine. Install OpenVINO: ")
    gpu = Observation("NVIDIA GPU", "ok", "one")
    others = [each for each in observations if each.what != gpu.what]
    assert verdict(None, [*others, gpu]).startswith("ready: tts init")


def test_engines_that_take_long_are_built_first(monkeypatch):
    deployment = load_deployment("demo")
    monkeypatch.setattr(machine, "quick_to_build", lambda deployment: [])

    def refuse(deployment, *, anew):
        raise BuildError("It has not been built.", hint="Run: tts build-engines demo")

    monkeypatch.setattr(machine, "require_current", refuse)
    line = verdict(deployment, diagnose(deployment))
    assert line == "missing: its engines. Run: tts build-engines demo"


H100 = load_deployment("llama-1b-prm-8b-h100-bf16")
FORMS = start_log_forms()


def lines(cut=0):
    """A start as planned; `cut` takes tokens off the verifier's pool."""
    for role, spec in H100.engines().items():
        tokens = spec.kv_cache.tokens - cut * (role == "verifier")
        pool, blocks = FORMS["pool"].example, FORMS["blocks"].example
        yield pool.replace("370816", str(tokens))
        yield blocks.replace("length=4096", f"length={spec.max_seq_len}")


@pytest.mark.parametrize(
    ("log", "states", "words"),
    [
        (["noise"], [], ""),
        ([*lines()], ["ok", "ok"], ""),
        ([*lines(cut=320)], ["note", "ok"], f"{H100.verifier.kv_cache.tokens - 320:,} tokens"),
        ([*lines(), FORMS["shortened"].example], ["ok", "note"], "5,185 tokens, where"),
    ],
)
def test_pools_and_lengths_of_the_last_start(home, log, states, words):
    file = paths.server_dir(H100.name) / LOG
    assert list(last_start(H100)) == []
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(log))
    seen = list(last_start(H100))
    assert [each.state for each in seen] == states
    assert words in " ".join(each.found for each in seen)
