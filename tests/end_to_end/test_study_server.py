"""A tiny study of the demo pair on real servers: interrupted, resumed, and what it shows."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from os import environ

import pytest
from tests.end_to_end.commands import summary, written_demo

from tts.base import paths
from tts.build.spec import load_deployment
from tts.lab.observer import Observer
from tts.lab.study.cells import Form
from tts.lab.study.measure import measure
from tts.lab.study.study_run import run_study
from tts.runs.folder import read_json, write_json
from tts.serving.repository.digest import deployment_digest
from tts.serving.server.start import start_server
from tts.serving.server.triton import Triton

pytestmark = pytest.mark.server

TINY = Form(
    rounds=1,
    problems=3,
    minutes=None,
    shares=(0.95,),
    schedules=("lockstep",),
    speculations=(),
    reuse_off=False,
    in_flight=(1,),
    n_factors=(2.0,),
    load_s=0.5,
    n=4,
)
CODE = f"""
import sys
from tts.lab.study import cells
cells.QUICK = cells.Form(**{asdict(TINY)})
sys.argv[0] = "tts"
from tts.cli import main
main()
"""


def start(tts, *arguments):
    """The command line, whose quick form is the tiny one."""
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**environ, "TTS_HOME": str(tts.home)},
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The demo pair with small batches, so that its load is measured in seconds."""
    few = {"max_batch_size": 4}
    file = tmp_path_factory.mktemp("deployment") / "small.yaml"
    return written_demo(file, generator={**few, "in_flight_requests": 4}, verifier=few)


@pytest.mark.slow
def test_a_study_is_interrupted_resumed_and_shown(tts, small, tmp_path):
    folder = tmp_path / "study"
    process = start(tts, "study", small, "--quick", "--out", folder)
    first = folder / "runs" / "as-deployed-1"
    deadline = time.monotonic() + 120
    while not (first / "summary.json").exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    refused, _, why = tts.run("report", folder)
    assert refused == 1
    assert "has not finished" in why
    assert f"tts study --resume {folder}" in err
    assert "of 5 runs are finished and saved" in err
    assert tts.leftovers() == []
    kept = (first / "events.jsonl").stat().st_mtime_ns

    out, _ = tts.done("study", "--resume", folder)
    assert (first / "events.jsonl").stat().st_mtime_ns == kept
    cells = ["as-deployed", "lockstep", "in-flight-1", "n-8", "split-95"]
    runs = {name: summary(folder / "runs" / f"{name}-1") for name in cells}
    assert len({runs[name]["tree_digest"] for name in cells if name != "n-8"}) == 1
    assert "Stay with schedule decoupled" in out
    assert (folder / "report.html").stat().st_size > 100_000
    data = json.loads((folder / "measurements.json").read_text())
    origins = {each["name"]: each["origin"] for each in data["measurements"]}
    assert origins == {
        "memory-by-split": "modelled",
        "throughput-by-split": "measured",
        "kv-blocks-generator": "measured",
        "kv-blocks-verifier": "measured",
        "prefix-hits-by-split": "modelled",
        "thrashing-by-split": "modelled",
        "tokens-per-request": "measured",
        "generator-by-load": "measured",
        "verifier-by-load": "measured",
        "batch-utilisation": "measured",
        "ablation": "measured",
        "concurrency": "measured",
        "accuracy-by-n": "measured",
    }
    assert data["same_trees"] is True
    blocks = {row["division"]: row["pool"] for row in rows(data, "kv-blocks-generator")}
    assert blocks["as deployed"] == 1280
    assert blocks["generator 95% of the KV memory"] > 6000
    config = (paths.repository_dir("demo") / "generator" / "config.pbtxt").read_text()
    assert deployment_digest(load_deployment(small)) in config, "the repository is the deployment's"

    asked = read_json(folder / "study.json", "no study")
    asked["deployment_digest"] = "of an earlier version of tts"
    write_json(folder / "study.json", asked)
    (folder / "report.html").unlink()
    again, err = tts.done("report", folder)
    assert again
    assert again in out
    assert "Starting" not in err, "a finished study needs no server"
    assert (folder / "report.html").exists()


@pytest.mark.slow  # of a run: test_runs_server.py
def test_a_server_that_runs_is_used_as_it_is(tts, small, tmp_path):
    lines = []

    class Following(Observer):
        def say(self, line):
            lines.append(line)

    with start_server(Triton(load_deployment(small))) as running:
        study = run_study(str(small), TINY, tmp_path / "study", Following(), dataset="demo", seed=0)
        running.check()
    assert any("are modelled" in line for line in lines)
    assert not list(study.folder.glob("runs/split-*"))
    found = {each.name: each for each in measure(study).measurements}
    assert found["prefix-hits-by-split"].origin == "modelled"
    assert "throughput-by-split" not in found


def rows(data, name):
    return next(each["rows"] for each in data["measurements"] if each["name"] == name)
