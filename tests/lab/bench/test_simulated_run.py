"""What `tts simulate` makes of its options."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.bundled import FOR_GPUS
from tests.runs.replay.recordings import recorded_run
from typer.testing import CliRunner

from tts.build.errors import ConfigError, TtsError
from tts.build.spec import deployment_file, load_deployment
from tts.build.tensorrt.gpus import gpus_of
from tts.build.tensorrt.placements import Placement, placed, placements
from tts.cli import app
from tts.lab.bench.simulated_run import (
    NEAR,
    PlacedRun,
    SimulationOptions,
    advice_of,
    placed_scenario,
    scenario_of,
    simulate_placements,
)
from tts.lab.simulation.fleet import CALL_S, fleet_of
from tts.lab.simulation.scenario import simulate
from tts.reports.simulation import advice_text, print_placements

WANTED = SimulationOptions(
    "h100", 1, "time-sliced", "beam-search", {"n": 8}, 4, 2, seed=3, speculation="off"
)


def test_a_scenario_is_what_was_asked_for():
    name, scenario = scenario_of(WANTED, {"strategy"})
    assert name == "beam-search"
    assert scenario.deployment.tensorrt.gpu == "h100"
    assert (scenario.servers, scenario.sharing) == (1, "time-sliced")
    assert (scenario.parameters.n, scenario.parameters.beam_width) == (8, 4)
    assert (scenario.problems, scenario.in_flight, scenario.seed) == (4, 2, 3)
    assert scenario.speculation == "off"


@pytest.fixture
def tune_result(tmp_path):
    levels = [
        {"load": n, "tokens_per_s": n / (4 + n), "requests_per_s": n / (4 + n), "latency_s": 4 + n}
        for n in (1, 2, 4)
    ]
    engine = {"levels": levels, "max_batch_size": 8, "max_num_tokens": 99, "computed_tokens": 1.0}
    file = tmp_path / "tune.json"
    file.write_text(json.dumps({"engines": {"generator": engine, "verifier": engine}}))
    return file


def test_a_call_costs_the_orchestrator_half_a_millisecond_unless_it_was_measured(tune_result):
    for wanted, call_s in ((WANTED, CALL_S), (replace(WANTED, tuned=tune_result), 0.0)):
        _, scenario = scenario_of(wanted, ())
        assert (scenario.fits is None) == (wanted.tuned is None)
        fleet = fleet_of(scenario.deployment, 1, scenario.sharing, scenario.fits)
        assert fleet.server.call_s == call_s


def test_what_cannot_be_simulated_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="bean-search"):
        scenario_of(replace(WANTED, strategy="bean-search"), ())
    for strategy in ("auto", "adaptive-vote"):  # which would go on as if no two answers agreed
        with pytest.raises(ConfigError, match=f"{strategy} cannot be simulated"):
            scenario_of(replace(WANTED, strategy=strategy), ())
    with pytest.raises(TtsError, match="holds no run"):
        scenario_of(replace(WANTED, replay=tmp_path / "nowhere"), ())


def test_of_a_recorded_run_only_the_system_may_be_another(tiny_deployment, tmp_path):
    _, folder = recorded_run(tiny_deployment, tmp_path / "run")
    replay = replace(WANTED, replay=folder)
    with pytest.raises(ConfigError, match=r"seed is 3, but the run recorded in .* has 1"):
        scenario_of(replay, {"seed"})
    with pytest.raises(ConfigError, match="strategy is 'dvts'"):
        scenario_of(replace(replay, strategy="dvts"), {"strategy"})
    for parameters, said in (
        ({"n": 16}, "n is 16, but .* has 8"),
        ({"beam_wdth": 2}, "beam_wdth is 2, but .* has None"),
    ):
        with pytest.raises(ConfigError, match=said):
            scenario_of(replace(replay, parameters=parameters), ())

    def said_to(*arguments):
        return CliRunner().invoke(app, ["simulate", "--replay", str(folder), *arguments])

    assert "seed is 7, but" in str(said_to("--seed", "7").exception)
    assert "n is 3, but" in str(said_to("--n", "3").exception)


def test_a_deployment_is_simulated_as_its_file_has_it():
    wanted = replace(WANTED, deployment="llama-8b-prm-8b-2xh100-bf16", replicas=2)
    _, scenario = scenario_of(wanted, ())
    assert scenario.servers == 2
    assert scenario.deployment.generator.placement.tensor_parallel == 2
    assert scenario.deployment.generator.kv_cache.tokens == 462_592
    assert (
        simulate(scenario, "decoupled").digest
        == simulate(scenario_of(WANTED, ())[1], "decoupled").digest
    )


@pytest.mark.parametrize("name", FOR_GPUS)
def test_every_ready_made_deployment_for_gpus_is_simulated(name):
    wanted = replace(WANTED, deployment=name, problems=1, parameters={"n": 4})
    outcome = simulate(scenario_of(wanted, ())[1], "decoupled")
    assert outcome.wall_s > 0


def test_options_of_the_usual_pair_do_not_go_with_a_deployment():
    wanted = replace(WANTED, deployment="demo-gpu")
    for option in ("gpu", "gpus"):
        with pytest.raises(ConfigError, match=f"--{option} is for the pair"):
            scenario_of(wanted, {option})


def test_a_deployment_for_a_cpu_is_simulated_by_what_was_measured_or_not_at_all(tune_result):
    wanted = replace(WANTED, deployment="demo", problems=2)
    with pytest.raises(ConfigError, match="in no data sheet"):
        scenario_of(wanted, ())
    _, scenario = scenario_of(replace(wanted, tuned=tune_result), ())
    assert gpus_of(scenario.deployment) == [0, 1], "each engine has cores of its own"
    assert simulate(scenario, "decoupled").wall_s > 0


def test_a_deployment_whose_pools_do_not_fit_is_refused(tmp_path):
    text = deployment_file("llama-1b-prm-8b-h100-bf16").read_text()
    file = tmp_path / "large.yaml"
    file.write_text(text.replace("tokens: 370816", "tokens: 970816"))
    with pytest.raises(ConfigError, match="more than GPU 0"):
        scenario_of(replace(WANTED, deployment=str(file)), ())


WIDE, MANY = Placement(1, 8, 8, shared=True), Placement(8, 1, 1, shared=True)


def run(placement, concurrency, speed, calls=0.1):
    return PlacedRun(placement, concurrency, speed, 1.0, calls)


SPEEDS = st.dictionaries(
    st.integers(1, 512),
    st.lists(st.floats(1, 1000), min_size=5, max_size=5),
    min_size=1,
    max_size=6,
)


@given(SPEEDS)
def test_advice_covers_every_concurrency_once_and_is_never_far_from_the_best(speeds):
    choices = placements(4)
    runs = [
        run(placement, concurrency, speed)
        for concurrency, row in speeds.items()
        for placement, speed in zip(choices, row, strict=True)
    ]
    advice = advice_of(runs)
    covered = [each for one in advice for each in one.concurrencies]
    assert covered == sorted(speeds)
    for one in advice:
        for concurrency in one.concurrencies:
            row = speeds[concurrency]
            assert row[choices.index(one.placement)] >= (1 - NEAR) * max(row)
    assert all(a.placement != b.placement for a, b in pairwise(advice))
    assert len(advice_text(advice)) == len(advice)


def test_advice_in_words():
    def said(*best):
        return advice_text(
            advice_of(
                [
                    run(placement, concurrency, 10.0 + 5.0 * (placement == fastest))
                    for concurrency, fastest in zip((1, 8, 64, 256), best, strict=False)
                    for placement in (WIDE, MANY)
                ]
            )
        )

    wide, many = (
        "1 server, both engines with TP8 on the same GPUs",
        "8 servers, both engines on one GPU",
    )
    assert said(WIDE, WIDE, MANY, MANY) == [
        f"Up to about 8 problems at a time: {wide} (simulated).",
        f"From about 64 problems at a time on: {many} (simulated).",
    ]
    assert said(WIDE, MANY, MANY, WIDE)[:2] == [
        f"One problem at a time: {wide} (simulated).",
        f"From about 8 to 64 problems at a time: {many} (simulated).",
    ]
    assert said(MANY) == [f"At every concurrency that was simulated: {many} (simulated)."]


def test_placements_are_simulated_with_their_own_servers_and_pools():
    deployment = load_deployment("llama-8b-prm-8b-2xh100-bf16")
    fits, _ = placed(deployment, 2)
    for each in fits:
        scenario = placed_scenario(each, 4, n=4)
        assert scenario.servers == each.placement.servers
        pool = each.deployment.generator.kv_cache.tokens
        assert scenario.deployment.generator.kv_cache.tokens == pool
    told = []
    runs = simulate_placements(fits, [1], 4, told.append)
    assert runs == told
    by = {each.placement.text: each for each in runs}
    alone = by["2 servers, both engines on one GPU"]
    split = by["1 server, both engines with TP2 on the same GPUs"]
    assert split.problems_per_min > 1.2 * alone.problems_per_min, "one problem: half the weights"


def test_the_table_says_that_it_is_simulated_and_where_calls_are_the_limit():
    runs = [run(WIDE, 1, 10.0), run(MANY, 1, 5.0), run(WIDE, 8, 11.0, 0.95), run(MANY, 8, 12.0)]
    console = Console(width=80)
    with console.capture() as capture:
        deployment = load_deployment("llama-1b-prm-8b-h100-bf16")
        print_placements(console, deployment, 8, 16, runs, [])
    text = capture.get()
    assert text.startswith("simulated: llama-1b-prm-8b-h100-bf16 on 8 x H100")
    for part in ("11*", "busy with calls for more than 90%", "One problem at a time: 1 server"):
        assert part in text


def tts(*arguments):
    return CliRunner().invoke(app, ["simulate", "--placements", *arguments])


def test_the_command_prints_placements_and_refuses_what_makes_no_sense():
    done = tts("llama-8b-prm-8b-2xh100-bf16", "--concurrency", "1", "--n", "4")
    assert done.exit_code == 0, done.output
    assert "2 servers, both engines on one GPU" in done.stdout
    assert "At every concurrency that was simulated" in done.stdout
    assert "give whole numbers" in tts("demo-gpu", "--concurrency", "1,x").stderr
    assert "give whole numbers" in tts("demo-gpu", "--concurrency", "0").stderr
    assert "goes with a deployment" in tts("--concurrency", "1").stderr
    alone = CliRunner().invoke(app, ["simulate", "--concurrency", "1"])
    assert "goes with --placements" in alone.stderr
    with pytest.raises(Exception, match="nothing to place"):
        raise tts("demo", "--concurrency", "1").exception


def test_what_fits_nowhere_is_refused(tmp_path):
    text = load_file("llama-8b-prm-8b-2xh100-bf16").replace("gpu: h100", "gpu: rtx4090")
    file = tmp_path / "small.yaml"
    file.write_text(text)
    with pytest.raises(Exception, match="cannot be placed on 1 GPUs"):
        raise tts(str(file), "--concurrency", "1", "--gpus", "1").exception


def load_file(name):
    from tts.build.spec import deployment_file

    return deployment_file(name).read_text()
