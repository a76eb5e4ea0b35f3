"""Whole searches of the demo pair by target llmapi, on the stand-in of TensorRT-LLM."""

import os
import signal

import psutil
import pytest
from tests.amounts import amount
from tests.end_to_end.commands import carry_out, summary, wait_for_events
from tests.engines.llmapi_standin import stand_in

from tts.build.builder import build_engines
from tts.build.spec import load_deployment
from tts.datasets.load import load_problems
from tts.lab.bench.single_run import plan_of
from tts.runs.config import RunConfig
from tts.serving.server.start import start_server

pytestmark = pytest.mark.server


@pytest.fixture
def llmapi(tts, monkeypatch):
    """The demo pair for target llmapi, on the OpenVINO engines of deployment demo."""
    monkeypatch.setenv("TTS_HOME", str(tts.home))
    stand_in(monkeypatch, load_deployment("demo"))
    deployment = load_deployment("demo-llmapi")
    build_engines(deployment, say=lambda line: None)
    return deployment


def beam_search(deployment, folder, problems):
    """The digest of the trees of a beam search on the server that runs."""
    wanted = RunConfig(
        deployment_source=deployment, dataset="demo", limit=problems, parameters={"n": 16}
    )
    outcome = carry_out(plan_of(wanted, load_problems("demo", limit=problems)), folder)
    assert outcome["problems"] == problems
    return outcome["tree_digest"]


@pytest.mark.slow
def test_problems_grow_the_trees_of_target_openvino(llmapi, served, tmp_path, monkeypatch):
    problems = amount(6, 40)
    with start_server(llmapi):
        ours = beam_search("demo-llmapi", tmp_path / "llmapi", problems)
    monkeypatch.setenv("TTS_HOME", str(served.home))
    assert ours == beam_search("demo", tmp_path / "openvino", problems)


@pytest.mark.slow  # two more starts; that a model's death is noticed: tests/serving
def test_a_run_whose_model_is_killed_is_saved_and_goes_on_to_the_same_trees(
    llmapi, tts, served, tmp_path, monkeypatch
):
    folder, arguments = tmp_path / "run", ("--limit", 6, "--n", 16)
    with start_server(llmapi) as server:
        run = tts.start("bench", "demo-llmapi", *arguments, "--out", folder)
        wait_for_events(run, folder, "scored", 100)
        stubs = psutil.Process(server.state.server.pid).children(recursive=True)
        (generator,) = [s for s in stubs if "/generator/1/" in " ".join(s.cmdline())]
        os.kill(generator.pid, signal.SIGKILL)
        _, said = run.communicate(timeout=60)
        assert run.returncode not in (0, 70), said
    assert "Traceback" not in said
    with start_server(llmapi):
        code, _, said = tts.run("bench", "--resume", folder)
    assert code == 0, said
    assert summary(folder)["problems"] == 6
    monkeypatch.setenv("TTS_HOME", str(served.home))
    assert summary(folder)["tree_digest"] == beam_search("demo", tmp_path / "openvino", 6)
