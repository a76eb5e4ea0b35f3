"""Tables of what the engines did per step, from the steps in run folders."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.study.results import CELLS, results_of
from tests.runs.logs import SESSION, log_bytes

from tts.build.spec import load_deployment
from tts.lab.study.cells import BASE
from tts.lab.study.engine_tables import MOST_STEPS, batch_utilisation, kv_blocks, parts
from tts.runs.engine_steps import EngineStep, StepLog, StepSession
from tts.runs.folder import EVENTS

DEMO = load_deployment("demo")


def run_with_steps(folder, steps):
    """A run folder whose generator made these steps."""
    folder.mkdir()
    (folder / EVENTS).write_bytes(log_bytes(SESSION))
    log = StepLog(folder, "generator", StepSession(session=SESSION.time, sampled=False))
    log.write(steps)
    log.close()
    return folder


def step(t, used, scheduled=1, tokens=10):
    return EngineStep(
        t=t,
        scheduled=scheduled,
        context_tokens=tokens,
        generated_tokens=0,
        blocks=100,
        blocks_used=used,
    )


def test_the_most_blocks_in_use_are_seen_however_many_steps_there_are(tmp_path):
    used = [place % 97 for place in range(1000)]
    run = run_with_steps(tmp_path / "run", [step(float(i), each) for i, each in enumerate(used)])
    table = kv_blocks("generator", [("as deployed", run)])
    assert len(table.rows) <= MOST_STEPS
    assert max(row["blocks in use"] for row in table.rows) == 96
    assert {row["most in use"] for row in table.rows} == {96}
    assert {row["pool"] for row in table.rows} == {100}


def test_an_engine_that_tells_nothing_has_no_table(tmp_path):
    run = run_with_steps(tmp_path / "run", [])
    assert kv_blocks("generator", [("as deployed", run)]) is None
    results = results_of({}, cells=CELLS[:1])
    assert batch_utilisation([_with_folder(results[BASE], run)], DEMO) is None


def test_utilisation_is_the_mean_of_steps_that_had_something_to_do(tmp_path):
    steps = [step(1.0, 5, 32, 64), step(2.0, 0, 0, 0), step(3.0, 5, 16, 192)]
    run = run_with_steps(tmp_path / "run", steps)
    results = results_of({}, cells=CELLS[:1])
    (row,) = batch_utilisation([_with_folder(results[BASE], run)], DEMO).rows
    assert (row["engine"], row["steps"], row["requests per step"]) == ("generator", 4, 24)
    assert row["batch utilisation"] == pytest.approx(24 / 64)
    assert row["of max_num_tokens"] == pytest.approx(128 / 256)


@given(st.integers(0, 2000), st.integers(1, 200))
def test_parts_hold_every_step_once_in_order(count, most):
    found = list(parts(range(count), most))
    assert len(found) <= most
    assert [each for _, part in found for each in part] == list(range(count))
    assert all(part[0] == begin for begin, part in found)


def _with_folder(result, folder):
    return replace(result, runs=tuple(replace(run, folder=folder) for run in result.runs))
