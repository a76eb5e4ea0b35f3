"""What `tts simulate` makes of its options."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.bundled import BUNDLED, FOR_GPUS
from tests.runs.replay.recordings import recorded_run
from typer.testing import CliRunner

from tts.base.errors import ConfigError, TtsError
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


def refused(wanted, given, said):
    with pytest.raises(ConfigError, match=said):
        scenario_of(wanted, given)


@pytest.mark.parametrize(
    ("changes", "given", "said"),
    [
        ({"strategy": "bean-search"}, (), "bean-search"),
        ({"strategy": "auto"}, (), "auto cannot be simulated"),
        # it would go on as if no two answers agreed
        ({"strategy": "adaptive-vote"}, (), "adaptive-vote cannot be simulated"),
        ({"deployment": "demo-gpu"}, {"gpu"}, "--gpu is for the pair"),
        ({"deployment": "demo-gpu"}, {"gpus"}, "--gpus is for the pair"),
        ({"deployment": "demo"}, (), "in no data sheet"),
    ],
)
def test_what_cannot_be_simulated_is_refused(changes, given, said):
    refused(replace(WANTED, **changes), given, said)


def test_of_a_recorded_run_only_the_system_may_be_another(tiny_deployment, tmp_path):
    _, folder = recorded_run(tiny_deployment, tmp_path / "run")
    for changes, options, said in (
        ({}, {"seed"}, r"seed is 3, but the run recorded in .* has 1"),
        ({"strategy": "dvts"}, {"strategy"}, "strategy is 'dvts'"),
        ({"parameters": {"n": 16}}, (), "n is 16, but .* has 8"),
        ({"parameters": {"beam_wdth": 2}}, (), "beam_wdth is 2, but .* has None"),
    ):
        refused(replace(WANTED, replay=folder, **changes), options, said)
    with pytest.raises(TtsError, match="no folder"):
        scenario_of(replace(WANTED, replay=tmp_path / "nowhere"), ())
    done = CliRunner().invoke(app, ["simulate", "--replay", str(folder), "--seed", "7"])
    assert "seed is 7, but" in str(done.exception)


def test_a_deployment_is_simulated_as_its_file_has_it():
    wanted = replace(WANTED, deployment="llama-8b-prm-8b-2xh100-bf16", replicas=2)
    _, scenario = scenario_of(wanted, ())
    assert scenario.servers == 2
    assert scenario.deployment.generator.placement.tensor_parallel == 2
    assert scenario.deployment.generator.kv_cache.tokens == 462_592
    usual = simulate(scenario_of(WANTED, ())[1], "decoupled")
    assert simulate(scenario, "decoupled").digest == usual.digest


PAIRS = [name for name in FOR_GPUS if not BUNDLED[name].shares_engine]


@pytest.mark.parametrize("name", PAIRS)
def test_every_ready_made_pair_for_gpus_is_simulated(name):
    wanted = replace(WANTED, deployment=name, problems=1, parameters={"n": 4})
    outcome = simulate(scenario_of(wanted, ())[1], "decoupled")
    assert outcome.wall_s > 0


def test_a_deployment_for_a_cpu_is_simulated_by_what_was_measured(tune_result):
    wanted = replace(WANTED, deployment="demo", problems=2, tuned=tune_result)
    _, scenario = scenario_of(wanted, ())
    assert gpus_of(scenario.deployment) == [0, 1], "each engine has cores of its own"
    assert simulate(scenario, "decoupled").wall_s > 0


def changed(tmp_path, name, old, new):
    """A file with a ready-made deployment, of which a part is another."""
    file = tmp_path / "changed.yaml"
    file.write_text(deployment_file(name).read_text().replace(old, new))
    return str(file)


def test_a_deployment_whose_pools_do_not_fit_is_refused(tmp_path):
    large = changed(tmp_path, "llama-1b-prm-8b-h100-bf16", "tokens: 370816", "tokens: 970816")
    refused(replace(WANTED, deployment=large), (), "more than GPU 0")


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


@pytest.mark.parametrize(
    ("best", "said"),
    [
        ([WIDE, WIDE, MANY, MANY], ["Up to about 8 problems", "From about 64 problems"]),
        (
            [WIDE, MANY, MANY, WIDE],
            ["One problem", "From about 8 to 64 problems", "From about 256"],
        ),
        ([MANY], ["At every concurrency that was simulated"]),
    ],
)
def test_advice_in_words(best, said):
    runs = [
        run(placement, concurrency, 10.0 + 5.0 * (placement == fastest))
        for concurrency, fastest in zip((1, 8, 64, 256), best, strict=False)
        for placement in (WIDE, MANY)
    ]
    lines = advice_text(advice_of(runs))
    for line, begins in zip(lines, said, strict=True):
        assert line.startswith(begins)
        assert line.endswith("(simulated).")


def test_placements_are_simulated_with_their_own_servers_and_pools():
    deployment = load_deployment("llama-8b-prm-8b-2xh100-bf16")
    fits, _ = placed(deployment, 2)
    sizes = [placed_scenario(fits[0], concurrency, n=4).problems for concurrency in (1, 8, 40, 99)]
    assert sizes == [8, 16, 64, 99]
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
    return CliRunner().invoke(app, ["simulate", *arguments])


def test_the_command_prints_placements():
    done = tts("--placements", "llama-8b-prm-8b-2xh100-bf16", "--concurrency", "1", "--n", "4")
    assert done.exit_code == 0, done.output
    assert "2 servers, both engines on one GPU" in done.stdout
    assert "At every concurrency that was simulated" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--placements", "demo-gpu", "--concurrency", "1,x"), "give whole numbers"),
        (("--placements", "demo-gpu", "--concurrency", "0"), "give whole numbers"),
        (("--placements", "--concurrency", "1"), "goes with a deployment"),
        (("--concurrency", "1"), "goes with --placements"),
        (("--placements", "demo", "--concurrency", "1"), "nothing to place"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(arguments, said):
    done = tts(*arguments)
    assert said in f"{done.stderr}{done.exception}"


def test_what_fits_nowhere_is_refused(tmp_path):
    small = changed(tmp_path, "llama-8b-prm-8b-2xh100-bf16", "gpu: h100", "gpu: rtx4090")
    done = tts("--placements", small, "--concurrency", "1", "--gpus", "1")
    assert "cannot be placed on 1 GPUs" in str(done.exception)
