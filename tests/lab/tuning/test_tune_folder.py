"""The folder of a tune result, and the step times that are fitted to it."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.tuning.samples import LOADS, samples_of
from tests.runs.replay.recordings import recorded_run

from tts.base.errors import Interrupted, RunError
from tts.engines.simulated import Affine
from tts.fleet import connecting
from tts.lab.observer import Observer
from tts.lab.tuning import tune as module
from tts.lab.tuning.measure import LoadSample, Measured, analyse
from tts.lab.tuning.tune import fit_decode, fit_line, fit_prefill, read_fits, to_json, tune
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


@given(st.floats(0, 10), st.floats(0, 10))
def test_a_line_is_found_again(step_s, each_s):
    if step_s + each_s < 1e-3:
        return
    points = [(load, each_s + step_s / load) for load in LOADS]
    assert fit_line(points) == pytest.approx((step_s, each_s), rel=1e-6, abs=1e-6)


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0.01, 100)), min_size=1, max_size=20))
def test_no_fit_is_negative_and_one_load_is_no_line(points):
    if len({n for n, _ in points}) < 2:
        with pytest.raises(ValueError, match="fewer than two loads"):
            fit_line(points)
        return
    step_s, each_s = fit_line(points)
    assert min(step_s, each_s) >= 0
    assert step_s + each_s > 0


def test_step_times_are_fitted_within_the_batch_only():
    engine = {"max_batch_size": 64, "max_num_tokens": 640, "computed_tokens": 20.0}
    step_s, each_s = 4e-3, 1e-4
    decode = [
        {"load": n, "tokens_per_s": min(n, 64) / (step_s + each_s * min(n, 64))} for n in LOADS
    ]
    found = fit_decode({**engine, "levels": decode})
    assert found.step_s == pytest.approx(step_s)
    assert found.decode_s == pytest.approx(each_s)
    prefill = []
    for n in LOADS:
        rate = min(n, 32) / (step_s + each_s * 20 * min(n, 32))  # 32 requests fill max_num_tokens
        prefill.append({"requests_per_s": rate, "latency_s": n / rate})
    found = fit_prefill({**engine, "levels": prefill})
    assert found.step_s == pytest.approx(step_s)
    assert found.prefill_token_s == pytest.approx(each_s)


def test_a_result_is_kept_and_fitted(run, recorded, tmp_path):
    both = [Measured("generator", 8), Measured("verifier", 200)]
    for engine in both:
        engine.samples += [
            LoadSample(n, 1e3 * n / (4 + n), 100 * n / (4 + n), (4 + n) / 100)
            for n in (1, 2, 4, 8, 16)
            for _ in range(2)
        ]
    spec = run.models.deployment
    result = to_json(spec, "runs/one", recorded, [analyse(engine, spec) for engine in both])
    (tmp_path / "tune.json").write_text(json.dumps(result))
    fits = read_fits(tmp_path)
    assert fits == read_fits(tmp_path / "tune.json")
    assert fits["generator"] == Affine(pytest.approx(4e-3), decode_s=pytest.approx(1e-3))
    computed = result["engines"]["verifier"]["computed_tokens"]
    assert 0 < computed <= result["engines"]["verifier"]["prompt_tokens"]
    assert fits["verifier"].prefill_token_s == pytest.approx(1e-2 / computed)


def test_what_cannot_be_fitted_is_refused(tmp_path):
    with pytest.raises(RunError, match="no tune result"):
        read_fits(tmp_path)
    (tmp_path / "tune.json").write_text('{"engines": {"generator": {"levels": []}}}')
    with pytest.raises(RunError, match="can be fitted to"):
        read_fits(tmp_path)
    level = {"load": 1, "tokens_per_s": 1.0, "requests_per_s": 10**400, "latency_s": 0.5}
    engine = {"max_batch_size": 8, "max_num_tokens": 8, "computed_tokens": 1, "levels": [level]}
    engine["levels"].append({**level, "load": 2})
    result = {"engines": {"generator": engine, "verifier": engine}}
    (tmp_path / "tune.json").write_text(json.dumps(result))
    with pytest.raises(RunError, match="int too large"):
        read_fits(tmp_path)
