"""What the engine host says while it loads."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.engines import loading
from tts.engines.loading import Stage, read_weights

texts = st.text(st.characters(exclude_categories=["Cs"]))
stages = st.builds(Stage, texts, texts, st.none() | st.floats(0, 1))


@given(stages, texts.map(lambda text: text.replace("tts", "")))
def test_a_stage_is_read_back_from_a_line_of_the_log(stage, before):
    line = stage.line()
    assert "\n" not in line
    assert Stage.parse(before + line) == stage
    assert Stage.parse(before) is None


@given(stages, st.integers(0, 200))
def test_a_line_that_is_being_written_says_nothing_or_all(stage, length):
    line = stage.line()
    assert Stage.parse(line[:length]) in (None, stage)


@pytest.mark.parametrize(("step_s", "times", "last"), [(0.3, 5, 10_000 / 10_500), (1.0, 11, 1.0)])
def test_weights_are_read_to_their_end_and_the_fraction_rises(
    tmp_path, monkeypatch, step_s, times, last
):
    """It is said twice a second: of eleven parts every one, or every other one."""
    clock = itertools.count(0.0, step_s)
    monkeypatch.setattr(loading.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(loading, "_CHUNK_BYTES", 1000)
    file = tmp_path / "openvino_model.bin"
    file.write_bytes(bytes(10_500))
    said = []
    read_weights(file, said.append)
    assert said == sorted(said)
    assert (len(said), said[-1]) == (times, last)


def test_weights_that_cannot_be_read_are_left_to_whoever_opens_them(tmp_path):
    said = []
    read_weights(tmp_path / "missing.bin", said.append)
    assert said == []
