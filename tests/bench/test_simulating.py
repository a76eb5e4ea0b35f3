"""What `tts simulate` makes of its options."""

import json
from dataclasses import replace

import pytest

from tts.bench.simulating import CALL_MS, WantedSimulation, scenario_of
from tts.build.errors import ConfigError, TtsError

WANTED = WantedSimulation(
    "h100", 1, "time-sliced", "beam-search", {"n": 8}, 4, 2, seed=3, speculation="off"
)


def test_a_scenario_is_what_was_asked_for():
    name, scenario = scenario_of(WANTED, {"strategy"})
    assert name == "beam-search"
    assert scenario.deployment.tensorrt.gpu == "h100"
    assert (scenario.gpus, scenario.sharing) == (1, "time-sliced")
    assert (scenario.parameters.n, scenario.parameters.beam_width) == (8, 4)
    assert (scenario.problems, scenario.in_flight, scenario.seed) == (4, 2, 3)
    assert scenario.speculation == "off"
    assert scenario.recorded is None


def test_a_call_costs_the_orchestrator_half_a_millisecond_unless_it_was_measured(tmp_path):
    levels = [
        {"load": n, "tokens_per_s": n / (4 + n), "requests_per_s": n / (4 + n), "latency_s": 4 + n}
        for n in (1, 2, 4)
    ]
    engine = {"levels": levels, "max_batch_size": 8, "max_num_tokens": 99, "computed_tokens": 1.0}
    file = tmp_path / "tune.json"
    file.write_text(json.dumps({"engines": {"generator": engine, "verifier": engine}}))
    tuned = replace(WANTED, tuned=file)
    for wanted, call_ms in (
        (WANTED, CALL_MS),
        (replace(WANTED, call_ms=2.0), 2.0),
        (tuned, 0.0),
        (replace(tuned, call_ms=2.0), 2.0),
    ):
        _, scenario = scenario_of(wanted, ())
        assert scenario.call_s == pytest.approx(call_ms / 1e3)
        assert (scenario.fits is None) == (wanted.tuned is None)


def test_what_cannot_be_simulated_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="bean-search"):
        scenario_of(replace(WANTED, strategy="bean-search"), ())
    with pytest.raises(TtsError, match="nothing to replay"):
        scenario_of(replace(WANTED, replay=tmp_path / "nowhere"), ())
