"""What caches of other sizes make of a run, as tables over divisions."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tts.build.spec import load_deployment
from tts.lab.study.engine_tables import SCALES, caches_by_split
from tts.lab.study.kv_memory import pair_memory
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


def test_a_run_without_lookups_has_no_table():
    assert caches_by_split(DEMO, MEMORY, {"generator": curve_of_uses([])}) == []
