"""The figures of a study: valid charts of every table, and a page that says what was asked."""

import json
from itertools import product
from pathlib import Path

import pytest
from tests.lab.study.results import results_of
from tests.reports.figures.checks import check

from tts.build.spec import load_deployment
from tts.lab.study.advice import advise
from tts.lab.study.cells import BASE, FULL
from tts.lab.study.engine_tables import memory_by_split
from tts.lab.study.folder import Measurement, Study, StudyConfig
from tts.lab.study.kv_memory import pair_memory
from tts.lab.study.measure import (
    ablation,
    accuracy_by_n,
    by_load,
    by_split,
    concurrency,
    same_trees,
)
from tts.reports.page.of_runs import Report
from tts.reports.study_page import FIGURES, study_figures

DEMO = load_deployment("demo")
STUDY = Study(
    None,
    StudyConfig("demo", "demo", "digest", "limits", "demo", 0, FULL, restarts=True),
    DEMO,
    pair_memory(DEMO),
    (),
)
LOAD = {
    "engines": {
        role: {
            "unit": unit,
            "levels": [
                {
                    "load": load,
                    "tokens_per_s": 100.0 * load,
                    "lowest": 90.0 * load,
                    "highest": 110.0 * load,
                    "latency_s": 0.01,
                }
                for load in (1, 2, 4)
            ],
            "saturation_point": {"load": point},
        }
        for role, unit, point in (("generator", "requests", 3.5), ("verifier", "tokens", None))
    }
}


def made(name, origin="measured", **columns):
    """A measurement: a row for each combination of these columns' values."""
    rows = [dict(zip(columns, values, strict=True)) for values in product(*columns.values())]
    return Measurement(name, rows, origin)


ENGINES = ("generator", "verifier")


def tables(results):
    return [
        by_split(STUDY, results),
        ablation(STUDY, results),
        concurrency(STUDY, results, 20),
        accuracy_by_n(results),
        memory_by_split(DEMO, pair_memory(DEMO)),
        *by_load(LOAD),
        made(
            "kv-blocks-generator",
            **{"division": ("as deployed", "generator 5%"), "engine": ("generator",)},
            **{"blocks in use": (0, 5, 10), "step": (1,), "pool": (100,), "most in use": (10,)},
        ),
        made(
            "batch-utilisation",
            **{"schedule": ("as deployed", "schedule lockstep"), "engine": ENGINES},
            **{"requests per step": (5.5,), "batch utilisation": (0.1,)},
        ),
        made(
            "tokens-per-request",
            **{"engine": ENGINES, "from tokens": (10.0,), "to tokens": (20.0,), "requests": (5,)},
        ),
        *(
            made(
                name,
                "modelled",
                **{"generator share": (0.1, 0.5), "engine": ENGINES, "KV memory": ("all", "1/4")},
                **{column: (0.5,)},
            )
            for name, column in (
                ("prefix-hits-by-split", "hit rate"),
                ("thrashing-by-split", "thrashing"),
            )
        ),
    ]


@pytest.mark.parametrize("rounds", [1, 2])
def test_every_measurement_has_a_valid_figure(rounds):
    results = results_of(
        {name: [10.0 + place, 11.0][:rounds] for place, name in enumerate(results_of({}))}
    )
    measured = tables(results)
    figures = study_figures(measured)
    assert len(figures) == len(measured)
    for figure in figures:
        check(figure)
        json.dumps(figure.chart, allow_nan=False)
    assert {figure.name for figure in figures} | {"kv-blocks-verifier"} == set(FIGURES)
    origins = {figure.name: figure.origin for figure in figures}
    assert origins["throughput-by-split"] == "measured"
    assert origins["prefix-hits-by-split"] == origins["memory-by-split"] == "modelled"


def test_the_reading_of_a_figure_has_its_numbers():
    changed = {"split-5": [20, 20.2], "split-50": [5, 5.1], "lockstep": [40, 40.4]}
    results = results_of(changed | {"in-flight-1": [20.0, 20.2]})
    figures = {figure.name: figure for figure in study_figures(tables(results))}
    first = figures["accuracy-by-n"].rows[0]
    for name, said in {
        "concurrency": "2 times the throughput",
        "accuracy-by-n": f"[{100 * first['low']:.1f}, {100 * first['high']:.1f}] right",
        "throughput-by-split": "As deployed the generator has 17.6% of the KV memory, and the pair "
        "solves 1.99 problems/s. The fastest other division gives it 50.0% and is 1.99 times as "
        "fast [1.98, 2.01].",
        "kv-blocks-generator": "as deployed 10 of 100 (10.0%), generator 5% 10 of 100 (10.0%).",
        "tokens-per-request": "the generator 5 of 10 to 20 tokens; the verifier 5 of 10 to 20",
        "generator-by-load": "400 tokens/s at best; 95% of it from 4 requests in flight on.",
        "verifier-by-load": "400 tokens/s at best; no saturation point was seen.",
        "batch-utilisation": "A step of the generator held 5.5 (as deployed) to 5.5 (schedule "
        "lockstep) requests, 10.0% of its batch.",
        "ablation": "Slower beyond the noise: schedule lockstep",
        "prefix-hits-by-split": "50.0% to 50.0% of the generator's and 50.0% to 50.0% of the",
    }.items():
        assert said in figures[name].reading, name
    assert "8 times the generated tokens" in figures["accuracy-by-n"].reading
    alike = {figure.name: figure.reading for figure in study_figures(tables(results_of({})))}
    assert "beyond the noise" not in alike["ablation"]


def test_the_saturation_point_is_told_to_a_tenth():
    generator, verifier = by_load(LOAD)
    assert {row["saturation point"] for row in generator.rows} == {3.5}
    assert {row["saturation point"] for row in verifier.rows} == {None}


def test_a_study_without_divisions_has_no_figure_of_them():
    results = {n: r for n, r in results_of({}).items() if r.cell.engines.share is None}
    assert by_split(STUDY, results) is None


def test_different_trees_are_noticed():
    results = results_of({})
    assert same_trees(list(results.values()))
    runs = results["lockstep"].runs
    object.__setattr__(runs[0], "tree_digest", "another")
    assert not same_trees(list(results.values()))
    assert results[BASE].runs[0].tree_digest == "digest"


def test_advice_stands_on_the_page_with_the_figure_that_it_rests_on():
    results = results_of({})
    advice = tuple(advise(results, {"policy": {}}))
    drawn = study_figures(tables(results))
    figure, *_ = Report(Path("page"), "Study", drawn, advice=advice).tables
    check(figure)
    assert len(figure.rows) == len(advice)
    assert figure.rows[0]["advice"].startswith("Leave the division")
    assert figure.rows[0]["rests on"] == "Throughput against the division of the KV memory"
