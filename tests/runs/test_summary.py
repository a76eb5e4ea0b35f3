"""A summary is derived from the log alone, and stays what it was."""

import json
import shutil

import pytest
from tests.runs.logs import SESSION, expansion, scoring
from tests.runs.logs import solved as plain_solved
from tests.runs.recorded import RECORDED
from tests.runs.runs import CONFIG

from tts.base.errors import RunError
from tts.runs.checks import read_summary_fields, write_summary
from tts.runs.config import RunConfig
from tts.runs.measures import Measures
from tts.runs.run import Run
from tts.runs.summary import read_summary, summarise

ASKED = RunConfig(**CONFIG | {"vote": "weighted"})


def solved(problem, now, level, correct, digest="d", answer="1"):
    return plain_solved(
        problem,
        now,
        level=level,
        correct=correct,
        any_correct=any(correct.values()),
        answers={"best": answer, "weighted": "1", "majority": "1"},
        tree_digest=digest,
    )


HALF_RIGHT = {"best": False, "weighted": True, "majority": False}
WRONG = {"best": False, "weighted": False, "majority": False}
TWO_SESSIONS = [
    SESSION,
    expansion([0], 0.0, 2.0, tokens=10),
    expansion([0], 1.0, 2.0, tokens=6),
    SESSION,
    scoring([0], 0.5, 1.5),
    scoring([1], 1.6, 1.6, cached=True),
]
B, A = solved("b", 1.8, 1, HALF_RIGHT), solved("a", 2.0, 2, WRONG)


def test_a_recorded_run_has_the_summary_that_was_written():
    run = Run.load(RECORDED)
    summary = summarise(run.config, run.totals)
    before = read_summary(RECORDED)
    assert summary == before
    assert summary.to_json() == read_summary_fields(RECORDED)
    assert list(summary.to_json()) == list(before.to_json())


def test_a_summary_adds_up_sessions_and_splits_accuracy():
    summary = summarise(ASKED, Measures.of([*TWO_SESSIONS, B, A], ASKED)).to_json()
    expected = {
        "problems": 2,
        "wall_s": 4.0,
        "generated_tokens": 16,
        "tokens_per_s": 4.0,
        "mean_in_flight": {"generator": 0.75, "verifier": 0.25},
        "verifier_calls": 1,
        "verifier_cached": 1,
        "accuracy": 0.5,
        "accuracy_by_rule": {"best": 0.0, "majority": 0.0, "weighted": 0.5},
        "sessions": 2,
    }
    assert expected.items() <= summary.items()
    assert summary["accuracy_by_level"]["1"] == {"problems": 1, "accuracy": 1.0}
    json.dumps(summary)


def test_the_digest_does_not_depend_on_the_order_of_problems_but_on_trees_and_answers():
    def digest(*problems):
        return summarise(ASKED, Measures.of([*TWO_SESSIONS, *problems])).tree_digest

    assert digest(A, B) == digest(B, A)
    assert digest(solved("b", 1.8, 1, HALF_RIGHT, digest="e"), A) != digest(B, A)
    assert digest(solved("b", 1.8, 1, HALF_RIGHT, answer="2"), A) != digest(B, A)


@pytest.fixture
def changed(tmp_path):
    """A finished run whose summary has other fields; ... removes one."""

    def change(**fields):
        folder = tmp_path / "run"
        shutil.copytree(RECORDED, folder)
        summary = json.loads((folder / "summary.json").read_text()) | fields
        write_summary(folder, {k: v for k, v in summary.items() if v is not ...})
        return folder

    return change


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"accuracy": ...}, "missing required field `accuracy`"),
        ({"accuracy": 2}, "at `$.accuracy`"),
        ({"accuracy_by_rule": {"luck": 1.0}}, "'luck'"),
        ({"speculation": {"sent": 1, "used": 0, "cancelled": {}, "hit_rate": None}}, "hit_rate"),
        ({"idle_s": {}}, "`idle_s` lacks an engine"),
        ({"idle_s": {"verifier": {}}}, "`idle_s` lacks an engine"),
        ({"problems": 10**400}, "`$.problems`"),
    ],
)
def test_what_a_table_could_not_be_made_of_is_named(changed, fields, complaint):
    folder = changed(**fields)
    with pytest.raises(RunError) as caught:
        read_summary(folder)
    assert str(folder / "summary.json") in caught.value.message
    assert complaint in caught.value.message
    assert f"tts bench --resume {folder}" in str(caught.value.hint)
