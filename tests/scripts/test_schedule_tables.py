"""What the bench of the schedules makes of its measurements."""

import pytest
from rich.console import Console
from scripts.bench.schedules.tables import limit_s, tables
from scripts.bench.schedules.trials import Result, Trial


def measured(wall, cpu, cores=2):
    return {
        "wall_s": wall,
        "cores": cores,
        "cpu_s": {"orchestrator": 0.25 * cpu, "tritonserver": 0.75 * cpu},
        "others_share": 0.0,
    }


@pytest.mark.parametrize(
    ("generator", "verifier", "cpu", "cores", "limit"),
    [
        (5.0, 3.0, 8.0, 2, 5.0),
        (3.0, 5.0, 8.0, 2, 5.0),
        (5.0, 3.0, 12.0, 2, 6.0),  # as much work as two cores do in six seconds
        (5.0, 3.0, 12.0, 16, 5.0),
    ],
)
def test_the_limit_is_an_engine_alone_or_all_cores_busy(generator, verifier, cpu, cores, limit):
    alone = [measured(wall, cpu / 2, cores) for wall in (generator, verifier)]
    assert limit_s(*alone, measured(9.0, cpu, cores)) == limit


def shown(results):
    console = Console(width=150)
    with console.capture() as capture:
        console.print(tables(results))
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_the_distance_from_the_limit_is_that_of_each_round():
    results = []
    for turn, slower in enumerate((1.0, 2.0)):
        for what, wall in (("generator", 4.0), ("verifier", 5.0), ("both", 8.0)):
            trial = Trial("efficiency", "demo", turn, 8, what=what)
            results.append(Result(trial, measured(slower * wall, slower * 14.0)))
    searched = {"occupancy": {}, "nodes": 1000, "digest": "same", "waste": {"share": None}}
    searched["speculation"] = {"sent": 0, "used": 0, "cancelled": {}}
    searched["idle_s"] = {}
    for turn, wall in enumerate((10.0, 14.0)):
        trial = Trial("walls", "demo", turn, 8)
        results.append(Result(trial, measured(wall, 18.0) | searched))
    row = "demo 6.0 7.5 12.0 10.5 12.0 0.85 (0.70 to 1.00) >= 0.92 no 0.97 (0.80 to 1.14)"
    assert row in shown(results)


def test_variants_are_compared_within_a_round():
    walls = {"triton": (10.0, 40.0), "embedded": (5.0, 30.0)}
    results = [
        Result(Trial("efficiency", "demo", turn, 8, what="both"), measured(wall, wall), variant)
        for variant, both in walls.items()
        for turn, wall in enumerate(both)
    ]
    lines = shown(results)
    assert "embedded over triton" in lines
    ratio = "0.62 (0.50 to 0.75)"
    assert f"demo: both without dependencies 2 {ratio} {ratio}" in lines
