"""The tables of a study: how fast cells were, and what caches of other sizes would make of it."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.study.results import CELLS, results_of
from tests.runs.logs import SESSION, log_bytes

from tts.build.spec import load_deployment
from tts.lab.study.cells import BASE, FULL
from tts.lab.study.engine_tables import (
    MOST_STEPS,
    SCALES,
    batch_utilisation,
    caches_by_split,
    kv_blocks,
    memory_by_split,
    parts,
)
from tts.lab.study.folder import Study, StudyConfig
from tts.lab.study.kv_memory import pair_memory
from tts.lab.study.measure import (
    ablation,
    accuracy_by_n,
    by_load,
    by_schedule,
    by_split,
    concurrency,
    same_trees,
    two_divisions,
)
from tts.runs.engine_steps import EngineStep, StepLog, StepSession
from tts.runs.folder import EVENTS
from tts.runs.paged_cache import Use, curve_of_uses
from tts.runs.statistics import wilson

DEMO = load_deployment("demo")
MEMORY = pair_memory(DEMO)


ASKED = StudyConfig("demo", "demo", "digest", "limits", "demo", 0, FULL, restarts=True)
STUDY = Study(None, ASKED, DEMO, MEMORY, ())
RESULTS = results_of(
    {"batched": [5.0, 5.05], "split-5": [20.0, 20.3], "split-50": [9.0, 9.1]},
    {BASE: 12, "n-32": 15},
)


def test_the_cells_that_change_the_schedule_or_a_cache_are_beside_the_base():
    table = ablation(STUDY, RESULTS)
    rows = {row.pop("changed"): row for row in table.rows}
    others = ["schedule lockstep", "schedule batched", "speculation off", "without prefix reuse"]
    assert list(rows) == ["as deployed", *others]
    batched = rows["schedule batched"]
    assert batched.pop("low") < 2.0 < batched.pop("high")
    assert batched == {
        "problems/s": 3.9801,
        "speed": 2.0,
        "generated tokens/s": 3820.9,
        "useful tokens/s": 1910.4,
        "goodput, tokens/s": 50.0,
        "s per problem (median)": 2.0,
    }
    assert "answered 20 of 200 scores" in table.notes[-1]
    assert [each.cell.name for each in by_schedule(RESULTS)] == [BASE, "lockstep", "batched"]


def test_divisions_limits_and_numbers_of_completions_are_in_their_order():
    splits = by_split(STUDY, RESULTS).rows
    assert [row["deployed"] for row in splits] == [False, True, False]
    assert [row["speed"] for row in splits] == [0.4988, 1.0, 1.1105]
    assert [row["generator share"] for row in splits] == pytest.approx([0.05, 0.176, 0.5], abs=1e-2)
    assert [title for title, _ in two_divisions(RESULTS)] == [
        "as deployed",
        "generator 5% of the KV memory",
    ]
    limits = concurrency(STUDY, RESULTS, 20).rows
    found = [(row["problems in flight"], row["limited"]) for row in limits]
    assert found == [(1, True), (4, True), (20, False)]
    by_n = accuracy_by_n(RESULTS).rows
    assert [(row["n"], row["accuracy"], row["problems"]) for row in by_n] == [
        *((4, 0.5, 40), (16, 0.6, 40), (32, 0.75, 40)),
    ]
    assert [row["generated tokens per problem"] for row in by_n] == [240, 960, 1920]
    assert (by_n[1]["low"], by_n[1]["high"]) == pytest.approx(wilson(0.6, 40), abs=1e-4)
    few = {name: RESULTS[name] for name in (BASE, "batched")}
    assert by_split(STUDY, few) is concurrency(STUDY, few, 20) is accuracy_by_n(few) is None


def test_trees_are_compared_among_cells_of_one_n_in_each_round():
    found = [*RESULTS.values()]
    assert same_trees(found)
    for name, same in ((BASE, False), ("n-4", True)):
        first, *others = RESULTS[name].runs
        other = replace(RESULTS[name], runs=(replace(first, tree_digest="other"), *others))
        assert same_trees([other, *(each for each in found if each is not RESULTS[name])]) == same


def test_throughput_over_load_is_that_of_tune_json():
    level = {"load": 2, "tokens_per_s": 9.04, "lowest": 8.0, "highest": 10.0, "latency_s": 0.0123}
    engine = {"unit": "requests", "levels": [level], "saturation_point": {"load": 3.51}}
    (table,) = by_load({"engines": {"generator": engine}})
    assert table.name == "generator-by-load"
    assert [*table.rows[0].values()] == ["generator", 2, "requests", 9.0, 8.0, 10.0, 12.3, 3.5]


def test_the_parts_of_the_memory_are_as_much_in_every_division():
    sizes = {}
    for row in memory_by_split(DEMO, MEMORY).rows:
        sizes.setdefault(row["generator share"], []).append(row["MiB"])
    whole = (sum(MEMORY.fixed.values()) + MEMORY.pools) / 2**20
    assert len(sizes) == 12
    assert all(sum(parts) == pytest.approx(whole, abs=0.5) for parts in sizes.values())


def curve(sequences, length):
    """Sequences of so many blocks, each looked up twice, one after the other."""
    paths = [tuple(range(i * length, (i + 1) * length)) for i in range(sequences)]
    return curve_of_uses(Use(path, True) for path in (*paths, *paths))


@settings(max_examples=15)
@given(st.integers(1, 60), st.integers(1, 12))
def test_more_memory_for_an_engine_means_no_fewer_hits_of_it(sequences, length):
    curves = {"generator": curve(sequences, length), "verifier": curve(sequences, length)}
    hits, thrashing = caches_by_split(DEMO, MEMORY, curves)
    for name in SCALES:
        for engine, sign in (("generator", 1), ("verifier", -1)):
            rates = [
                row["hit rate"]
                for row in hits.rows
                if (row["engine"], row["KV memory"]) == (engine, name)
            ][::sign]
            assert all(one <= other for one, other in pairwise(rates))
    for hit, miss in zip(hits.rows, thrashing.rows, strict=True):
        assert hit["hit rate"] + miss["thrashing"] <= 0.5 + 1e-3  # the first half is compulsory


def test_the_rows_say_where_pools_are_too_small():
    hits, thrashing = caches_by_split(
        DEMO, MEMORY, {"generator": curve(700, 2), "verifier": curve(9, 5)}
    )
    assert hits.origin == thrashing.origin == "modelled"
    whole = [row for row in hits.rows if row["KV memory"] == "all"]
    assert {row["hit rate"] for row in whole if row["engine"] == "generator"} == {0.0, 0.5}
    assert "1,400 different blocks were used on the generator" in hits.notes[1]


def test_a_pool_that_does_not_hold_the_largest_request_has_no_row():
    hits, _ = caches_by_split(DEMO, MEMORY, {"verifier": curve(2, 150)})
    assert all(row["blocks"] >= 150 for row in hits.rows)
    assert len(hits.rows) < 36
    assert caches_by_split(DEMO, MEMORY, {"generator": curve_of_uses([])}) == []


def run_with_steps(folder, steps):
    """A run folder whose generator made these steps."""
    folder.mkdir()
    (folder / EVENTS).write_bytes(log_bytes(SESSION))
    log = StepLog(folder, "generator", StepSession(session=SESSION.time, sampled=False))
    log.write(steps)
    log.close()
    return folder


def step(t, used, scheduled=1, tokens=10):
    engine = {"scheduled": scheduled, "context_tokens": tokens, "generated_tokens": 0}
    return EngineStep(t=t, **engine, blocks=100, blocks_used=used)


def utilisation(run):
    (base,) = results_of({}, cells=CELLS[:1]).values()
    runs = tuple(replace(each, folder=run) for each in base.runs)
    return batch_utilisation([replace(base, runs=runs)], DEMO)


def test_the_most_blocks_in_use_are_seen_however_many_steps_there_are(tmp_path):
    used = [place % 97 for place in range(1000)]
    run = run_with_steps(tmp_path / "run", [step(float(i), each) for i, each in enumerate(used)])
    table = kv_blocks("generator", [("as deployed", run)])
    assert len(table.rows) <= MOST_STEPS
    assert max(row["blocks in use"] for row in table.rows) == 96
    assert {(row["most in use"], row["pool"]) for row in table.rows} == {(96, 100)}


def test_an_engine_that_tells_nothing_has_no_table(tmp_path):
    run = run_with_steps(tmp_path / "run", [])
    assert kv_blocks("generator", [("as deployed", run)]) is None
    assert utilisation(run) is None


def test_utilisation_is_the_mean_of_steps_that_had_something_to_do(tmp_path):
    steps = [step(1.0, 5, 32, 64), step(2.0, 0, 0, 0), step(3.0, 5, 16, 192)]
    run = run_with_steps(tmp_path / "run", steps)
    (row,) = utilisation(run).rows
    assert (row["engine"], row["steps"], row["requests per step"]) == ("generator", 4, 24)
    assert row["batch utilisation"] == pytest.approx(24 / 64)
    assert row["of max_num_tokens"] == pytest.approx(128 / 512)


@given(st.integers(0, 2000), st.integers(1, 200))
def test_parts_hold_every_step_once_in_order(count, most):
    found = list(parts(range(count), most))
    assert len(found) <= most
    assert [each for _, part in found for each in part] == list(range(count))
    assert all(part[0] == begin for begin, part in found)
