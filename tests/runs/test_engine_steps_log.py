"""The engines' steps beside a log: written by session, read back whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.build.errors import RunError
from tts.runs.engine_steps import EngineStep, StepLog, StepSession, read_step_log, steps_file

SESSION = StepSession(session="2026-01-01T00:00:00+00:00", sampled=False)
NUMBERS = st.none() | st.integers(0, 10**6)
STEPS = st.builds(
    EngineStep,
    t=st.floats(0, 1e6),
    seconds=st.none() | st.floats(0, 1e3),
    **{name: NUMBERS for name in EngineStep.__struct_fields__ if name not in ("t", "seconds")},
)


def write(folder, *steps, session=SESSION):
    log = StepLog(folder, "generator", session)
    log.write(steps)
    log.close()


@given(steps=st.lists(STEPS, max_size=4))
def test_steps_come_back_as_written(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("run")
    write(folder, *steps)
    assert list(read_step_log(folder, "generator")) == [SESSION, *steps]


def test_a_session_appends_to_those_before_and_a_half_line_is_cut(tmp_path):
    write(tmp_path, EngineStep(t=1.0), EngineStep(t=2.0))
    file = steps_file(tmp_path, "generator")
    file.write_bytes(file.read_bytes()[:-4])  # the run was killed
    assert list(read_step_log(tmp_path, "generator")) == [SESSION, EngineStep(t=1.0)]
    resumed = StepSession(session="later", sampled=True)
    write(tmp_path, EngineStep(t=0.5, active=3), session=resumed)
    assert list(read_step_log(tmp_path, "generator")) == [
        SESSION,
        EngineStep(t=1.0),
        resumed,
        EngineStep(t=0.5, active=3),
    ]


def test_a_run_without_steps_has_none(tmp_path):
    assert list(read_step_log(tmp_path, "verifier")) == []


def test_a_line_says_by_its_session_what_its_columns_are(tmp_path):
    write(tmp_path, EngineStep(t=1.0))
    (session, _) = read_step_log(tmp_path, "generator")
    assert session.columns == EngineStep.__struct_fields__
    assert session.columns[0] == "t"


def test_steps_of_an_older_version_lack_what_came_later(tmp_path):
    write(tmp_path)
    with steps_file(tmp_path, "generator").open("a") as file:
        file.write("[1.5,7]\n")
    assert list(read_step_log(tmp_path, "generator"))[1] == EngineStep(t=1.5, iteration=7)


@pytest.mark.parametrize("line", ["[]", "{}", "x", '["1"]'])
def test_a_damaged_line_is_named(tmp_path, line):
    write(tmp_path)
    with steps_file(tmp_path, "generator").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(RunError, match=r"generator\.jsonl, line 2 is not a step"):
        list(read_step_log(tmp_path, "generator"))
