"""Step times fitted to a result, which is kept in tune.json."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.tuning.samples import LOADS

from tts.base.errors import RunError
from tts.engines.simulated import Affine
from tts.lab.tuning.measure import LoadSample, Measured, analyse
from tts.lab.tuning.tune import fit_decode, fit_line, fit_prefill, read_fits, to_json


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
