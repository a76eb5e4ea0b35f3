"""run.json and group.json are whole, or it is said which field is not."""

import json

import pytest
from tests.runs.test_log import V1_RUN

from tts.build.errors import RunError
from tts.runs.config import read_whole_config, read_whole_group
from tts.runs.folder import CONFIG, GROUP, read_config

WHOLE = read_config(V1_RUN)
MEMBER = {"folder": "cot", "votes": {"cot": "best"}, "parameters": {}}
NEEDED = sorted(set(WHOLE) - {"prompting", "context", "speculation", "in_flight"})


def test_a_run_of_version_1_is_whole():
    assert read_whole_config(V1_RUN) == WHOLE


@pytest.mark.parametrize("name", NEEDED)
def test_a_field_that_is_missing_or_of_a_wrong_type_is_named(tmp_path, name):
    for changed in (
        {key: value for key, value in WHOLE.items() if key != name},
        {**WHOLE, name: 1.5},
    ):
        (tmp_path / CONFIG).write_text(json.dumps(changed))
        with pytest.raises(RunError, match=name) as caught:
            read_whole_config(tmp_path)
        assert str(tmp_path / CONFIG) in caught.value.message
        assert "new run" in caught.value.hint


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "runs"),
        ({"runs": None}, "runs"),
        ({"runs": [{"folder": "cot"}]}, "votes"),
        ({**WHOLE, "runs": []}, "runs"),
        ({"runs": [MEMBER]}, "missing required field"),
        ({**WHOLE, "runs": [MEMBER], "replay": {"source": 1}}, "replay"),
    ],
)
def test_a_group_that_is_not_whole_is_named(tmp_path, changed, said):
    (tmp_path / GROUP).write_text(json.dumps(changed))
    with pytest.raises(RunError, match=said) as caught:
        read_whole_group(tmp_path)
    assert str(tmp_path / GROUP) in caught.value.message


def test_a_whole_group_is_read_with_its_runs(tmp_path):
    (tmp_path / GROUP).write_text(json.dumps({**WHOLE, "runs": [MEMBER]}))
    _, (member,) = read_whole_group(tmp_path)
    assert member.strategy == "cot"
