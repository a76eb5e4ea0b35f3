"""summary.json as it is read back."""

import json
import shutil

import pytest
from tests.runs.test_log import V1_RUN

from tts.build.errors import RunError
from tts.runs.recorded_summary import read_whole_summary

LATER = ("waste", "latency_s", "speculation", "verifier_batches")
"""Fields that summaries of older versions lack."""


@pytest.fixture
def changed(tmp_path):
    """A finished run whose summary has other fields; ... removes one."""

    def change(**fields):
        folder = tmp_path / "run"
        shutil.copytree(V1_RUN, folder)
        summary = json.loads((folder / "summary.json").read_text()) | fields
        kept = {name: value for name, value in summary.items() if value is not ...}
        (folder / "summary.json").write_text(json.dumps(kept))
        return folder

    return change


def test_a_summary_of_an_older_version_is_read_as_it_is(changed):
    folder = changed(context=..., replay=..., **dict.fromkeys(LATER, ...))
    assert read_whole_summary(folder) == json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"accuracy": ...}, "missing required field `accuracy`"),
        ({"accuracy": "high"}, "got `str` - at `$.accuracy`"),
        ({"accuracy": 2}, "at `$.accuracy`"),
        ({"wall_s": None}, "at `$.wall_s`"),
        ({"mean_in_flight": {}}, "missing required field `generator` - at `$.mean_in_flight`"),
        ({"accuracy_by_rule": {"luck": 1.0}}, "'luck'"),
        ({"parameters": {"n": []}}, "at `$.parameters[...]`"),
        ({"latency_s": ...}, "`latency_s`, `speculation` and `verifier_batches` is missing"),
        ({"verifier_batches": ...}, "is missing"),
        ({"speculation": {"sent": 1, "used": 0, "cancelled": {}, "hit_rate": None}}, "hit_rate"),
        ({"idle_s": {}}, "`idle_s` lacks an engine"),
        ({"idle_s": {"verifier": {}}}, "`idle_s` lacks an engine"),
        ({"problems": 10**400}, "`$.problems`"),
    ],
)
def test_what_a_table_could_not_be_made_of_is_named(changed, fields, complaint):
    folder = changed(**fields)
    with pytest.raises(RunError) as caught:
        read_whole_summary(folder)
    assert str(folder / "summary.json") in caught.value.message
    assert complaint in caught.value.message
    assert f"tts bench --resume {folder}" in str(caught.value.hint)
