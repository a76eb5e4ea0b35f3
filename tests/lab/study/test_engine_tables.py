"""What caches of other sizes make of a run, as tables over divisions."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.study.results import CELLS, results_of
from tests.runs.logs import SESSION, log_bytes

from tts.build.spec import load_deployment
from tts.lab.study.engine_tables import (
    MOST_STEPS,
    SCALES,
    batch_utilisation,
    caches_by_split,
    kv_blocks,
    parts,
)
from tts.lab.study.kv_memory import pair_memory
from tts.runs.engine_steps import EngineStep, StepLog, StepSession
from tts.runs.folder import EVENTS
from tts.runs.paged_cache import Use, curve_of_uses

DEMO = load_deployment("demo")
MEMORY = pair_memory(DEMO)


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
    assert row["of max_num_tokens"] == pytest.approx(128 / 256)


@given(st.integers(0, 2000), st.integers(1, 200))
def test_parts_hold_every_step_once_in_order(count, most):
    found = list(parts(range(count), most))
    assert len(found) <= most
    assert [each for _, part in found for each in part] == list(range(count))
    assert all(part[0] == begin for begin, part in found)
