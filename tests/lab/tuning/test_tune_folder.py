"""The folder of a tune result."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.lab.tuning.samples import LOADS, samples_of
from tests.runs.replay.recordings import recorded_run

from tts.base.errors import Interrupted, RunError
from tts.fleet import connecting
from tts.lab.observer import Observer
from tts.lab.tuning import tune as module
from tts.lab.tuning.measure import Measured
from tts.lab.tuning.tune import tune
from tts.runs.folder import CONFIG, locked
from tts.session import AsyncSession


@pytest.fixture(autouse=True)
def not_started(monkeypatch):
    async def start(session):
        raise AssertionError("the engines were started")

    monkeypatch.setattr(connecting, "require_current", lambda spec: None)
    monkeypatch.setattr(connecting, "build_if_quick", lambda spec, say: None)
    monkeypatch.setattr(AsyncSession, "__aenter__", start)


def test_a_folder_that_another_process_works_in_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "run"):
        with locked(folder), pytest.raises(RunError, match=f"{folder} is in use by process"):
            tune("demo", out=tmp_path, observer=Observer())


def test_a_folder_that_holds_a_run_is_refused_before_any_engine_is_started(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / CONFIG).write_text("{}")
    with pytest.raises(RunError, match="already holds a run"):
        tune("demo", out=tmp_path, observer=Observer())
    with pytest.raises(RunError, match="missing required field"):
        tune("demo", run=tmp_path / "run", out=tmp_path, observer=Observer())
    (tmp_path / module.RESULT).write_text("{}")
    with pytest.raises(RunError, match="already holds a tune result"):
        tune("demo", out=tmp_path, observer=Observer())


def test_a_run_of_another_deployment_or_of_too_few_requests_is_refused(
    tiny_deployment, run, tmp_path, monkeypatch
):
    _, folder = recorded_run(tiny_deployment, tmp_path / "run")
    assert module.read_requests(folder, run.models).scorings
    other = tiny_deployment.model_copy(update={"name": "other"})
    with pytest.raises(RunError, match="is one of 'tiny', not of 'other'"):
        module.read_requests(folder, replace(run.models, deployment=other))
    for role, requests in (("generator", "generations"), ("verifier", "scorings")):
        count = len(getattr(module.read_requests(folder, run.models), requests))
        monkeypatch.setattr(module, "LEAST_REQUESTS", count + 1)
        with pytest.raises(RunError, match=f"holds .* requests to the (generator|{role})"):
            module.read_requests(folder, run.models)
        monkeypatch.setattr(module, "LEAST_REQUESTS", 1)


@pytest.mark.parametrize("stopped", [True, False])
def test_measurements_that_were_stopped_are_kept_and_propose_nothing(
    tmp_path, monkeypatch, recorded, stopped
):
    async def measure_engines(session, recorded, seconds, into, observer):
        samples = samples_of(1.0, 0.5, LOADS, (1.0, 1.0))
        into += [Measured("generator", 64, samples), Measured("verifier", 4096, samples[:3])]

    @asynccontextmanager
    async def work(session):
        yield

    async def nothing(session, *failure):
        return session

    def interruptible(running, say):
        asyncio.run(running)
        if stopped:
            raise Interrupted("Interrupted.")

    monkeypatch.setattr(module, "read_requests", lambda run, models: recorded)
    monkeypatch.setattr(module, "measure_engines", measure_engines)
    monkeypatch.setattr(module, "interruptible", interruptible)
    for name, patch in (("__aenter__", nothing), ("__aexit__", nothing), ("work", work)):
        monkeypatch.setattr(AsyncSession, name, patch)
    monkeypatch.setattr(AsyncSession, "started_server", True)
    tuned = tune("demo", run=tmp_path / "run", out=tmp_path / "tune", observer=Observer())
    kept = json.loads(tuned.file.read_text())
    assert len(kept["engines"]["generator"]["samples"]) == 2 * len(LOADS)
    assert kept.get("stopped") == (True if stopped else None)
    assert list(kept["policy"]) == ([] if stopped else ["generator"])
    assert bool(tuned.proposals) == bool(tuned.changes) == (not stopped)
    assert kept["threads"] == tuned.threads
    assert tuned.threads.startswith("generator 1 (default), verifier 1 (default); ")


def test_the_engines_are_measured_on_the_kind_of_server_that_was_asked_for(tmp_path, monkeypatch):
    async def start(session):
        raise RunError(session.deployment.server.kind)

    monkeypatch.setattr(AsyncSession, "__aenter__", start)
    with pytest.raises(RunError, match="embedded"):
        tune("demo", server="embedded", out=tmp_path, observer=Observer())
    with pytest.raises(RunError, match="triton"):
        tune("demo", out=tmp_path / "other", observer=Observer())
