"""The folder of a study: what was asked for is written once, and checked when it is read."""

from dataclasses import replace

import pytest

from tts.base.errors import RunError
from tts.lab.study.cells import FULL, QUICK, Cell, CellRun
from tts.lab.study.folder import StudyConfig, create_study, read_study, run_folder
from tts.lab.study.study_run import in_words
from tts.runs.folder import read_json, write_json

ASKED = StudyConfig("demo", "demo", "digest", "limits", "demo", 3, QUICK, restarts=True)


@pytest.mark.parametrize("form", [QUICK, FULL])
def test_what_is_asked_for_is_read_back_as_it_was(tmp_path, form):
    asked = replace(ASKED, form=form)
    with pytest.raises(RunError, match="holds no study"):
        read_study(tmp_path)
    create_study(tmp_path, asked)
    assert read_study(tmp_path) == asked
    assert run_folder(tmp_path, CellRun(Cell("n-4", "n = 4", 4), 2)) == tmp_path / "runs" / "n-4-2"


def test_a_folder_holds_one_study_and_no_run(tmp_path):
    create_study(tmp_path / "study", ASKED)
    with pytest.raises(RunError, match="already holds a study") as refused:
        create_study(tmp_path / "study", ASKED)
    assert "--resume" in refused.value.hint
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RunError, match="already holds a run"):
        create_study(tmp_path, ASKED)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data | {"form": data["form"] | {"rounds": "two"}}, "rounds"),
        (lambda data: data | {"version": 99}, "version 99"),
        (lambda data: {}, "missing required field"),
    ],
)
def test_what_cannot_be_continued_is_refused_in_a_sentence(tmp_path, damage, said):
    create_study(tmp_path, ASKED)
    file = tmp_path / "study.json"
    write_json(file, damage(read_json(file, "")))
    with pytest.raises(RunError, match=said):
        read_study(tmp_path)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (89, "89 s"), (90, "2 min"), (3570, "1 h 0 min"), (7800, "2 h 10 min")],
)
def test_time_left_in_words(seconds, words):
    assert in_words(seconds) == words
