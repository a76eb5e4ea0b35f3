"""run.json and group.json are whole, or it is said which field is not."""

import json

import pytest
from tests.runs.test_log import V1_RUN

from tts.build.errors import RunError
from tts.runs.config import RunConfig, check_same, parse_config, read_run_config
from tts.runs.folder import CONFIG, GROUP, read_config
from tts.runs.groups import read_members, read_whole_group

WHOLE = read_config(V1_RUN)
MEMBER = {"folder": "greedy", "votes": {"greedy": "best"}, "parameters": {}}
ADDED_LATER = {"prompting", "context", "speculation", "in_flight"}
NEEDED = sorted(set(WHOLE) - ADDED_LATER)
OWN = ("strategy", "vote", "parameters")


def test_a_run_of_version_1_is_whole():
    config = read_run_config(V1_RUN)
    assert config.to_json() == WHOLE
    assert {
        name: config[name] for name in WHOLE
    } == WHOLE  # as programs read it before it had a type
    with pytest.raises(KeyError):
        config["shard"]


@pytest.mark.parametrize("name", NEEDED)
def test_a_field_that_is_missing_or_of_a_wrong_type_is_named(tmp_path, name):
    for changed in (
        {key: value for key, value in WHOLE.items() if key != name},
        {**WHOLE, name: 1.5},
    ):
        (tmp_path / CONFIG).write_text(json.dumps(changed))
        with pytest.raises(RunError, match=name) as caught:
            read_run_config(tmp_path)
        assert str(tmp_path / CONFIG) in caught.value.message
        assert "new run" in caught.value.hint


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "runs"),
        ({"runs": None}, "runs"),
        ({"runs": [{"folder": "greedy"}]}, "votes"),
        ({**WHOLE, "runs": []}, "runs"),
        ({"runs": [MEMBER]}, "missing required field"),
    ],
)
def test_a_group_that_is_not_whole_is_named(tmp_path, changed, said):
    (tmp_path / GROUP).write_text(json.dumps(changed))
    with pytest.raises(RunError, match=said) as caught:
        read_whole_group(tmp_path)
    assert str(tmp_path / GROUP) in caught.value.message


def test_a_whole_group_is_read_with_its_runs(tmp_path):
    (tmp_path / GROUP).write_text(json.dumps({**WHOLE, "runs": [MEMBER]}))
    group = read_whole_group(tmp_path)
    (member,) = group.members
    assert member.strategy == "greedy"
    shared = {key: value for key, value in WHOLE.items() if key not in OWN}
    assert group.to_json() == {**shared, "runs": [MEMBER]}


def test_the_runs_of_a_group_say_more_of_the_servers_that_they_found(tmp_path):
    remotes = {"generator": {"url": ["http://127.0.0.1:8000"]}}
    group = {**WHOLE, "remotes": remotes, "runs": [MEMBER]}
    (tmp_path / GROUP).write_text(json.dumps(group))
    asked = {"strategy": "greedy", "parameters": {}}
    run = {**WHOLE, **asked, "remotes": {"generator": {**remotes["generator"], "model": "m"}}}
    folder = tmp_path / MEMBER["folder"]
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "events.jsonl").touch()
    (member,) = read_members(tmp_path)
    assert member.folder == MEMBER["folder"]
    (folder / "run.json").write_text(json.dumps({**run, "seed": 77}))
    with pytest.raises(RunError, match="its seed is 77"):
        read_members(tmp_path)


def test_what_another_version_has_written_or_did_not_know_stays_as_it_is(tmp_path):
    older = {key: value for key, value in WHOLE.items() if key not in ADDED_LATER}
    for data in (older, {**WHOLE, "from_tomorrow": [1]}):
        assert parse_config(data, tmp_path).to_json() == data


def test_a_field_that_an_older_version_did_not_know_is_not_compared(tmp_path):
    older = {key: value for key, value in WHOLE.items() if key not in ADDED_LATER}
    now = RunConfig(**older, in_flight=3).to_json()
    check_same(now, parse_config(older, tmp_path).to_json(), tmp_path)
    with pytest.raises(RunError, match="its in_flight was None and is now 3"):
        check_same(now, {**older, "in_flight": None}, tmp_path)


def test_a_run_goes_on_whatever_command_has_begun_it(tmp_path):
    before = {**WHOLE, "command": ["tts", "bench", "demo"]}
    config = parse_config(before, tmp_path)
    assert config.command == before["command"]
    assert config.to_json() == before
    check_same(WHOLE, before, tmp_path)
    check_same({**before, "command": ["tts", "bench", "other"]}, before, tmp_path)
    assert "command" not in RunConfig().to_json(), "a program has none"
