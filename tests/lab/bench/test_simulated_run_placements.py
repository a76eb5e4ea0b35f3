"""Which placement is advised at which concurrency."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from tts.build.spec import load_deployment
from tts.build.tensorrt.placements import Placement, placed, placements
from tts.cli import app
from tts.lab.bench.simulated_run import (
    NEAR,
    PlacedRun,
    advice_of,
    placed_scenario,
    simulate_placements,
)
from tts.reports.simulation import advice_text, print_placements

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
