"""run.json and group.json are whole, or it is said which field is not."""

import json

import pytest
from tests.runs.recorded import RECORDED

from tts.base.errors import RunError
from tts.runs.config import LEFT_OUT, RunConfig, check_same, parse_config, read_run_config
from tts.runs.folder import CONFIG, GROUP, read_config
from tts.runs.groups import read_members, read_whole_group

WHOLE = read_config(RECORDED)
MEMBER = {"folder": "greedy", "votes": {"greedy": "best"}, "parameters": {}}
NEEDED = sorted(set(WHOLE) - LEFT_OUT)
OWN = ("strategy", "vote", "parameters")


def test_a_recorded_run_is_whole():
    assert read_run_config(RECORDED).to_json() == WHOLE


@pytest.mark.parametrize("field", [{"vote": "most"}, {"from_tomorrow": [1]}])
def test_a_rule_of_voting_or_a_field_that_is_none_is_refused_by_name(tmp_path, field):
    with pytest.raises(RunError, match=r"no rule of voting|from_tomorrow"):
        parse_config({**WHOLE, **field}, tmp_path / CONFIG)


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


SOURCE = {"verifier": {"file": "prm.py", "name": "score", "sha256": "1"}}
SERVED = {"generator": {"url": ["http://a"], "model": "m"}}
BEFORE = {**WHOLE, "sources": SOURCE, "remotes": SERVED, "problems_digest": "1"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 3}, "its seed was 0 and is now 3"),
        ({"functions": {"verifier": "f"}}, "its functions was None and is now"),
        ({"limits": {"budget_tokens": 9}}, "its limits was None and is now"),
        ({"problems_digest": "2"}, "questions or answers of demo are not"),
        ({"problems_digest": "2", "problem_ids": ["x"]}, "its problem_ids was"),
        ({"sources": {"verifier": SOURCE["verifier"] | {"sha256": "2"}}}, None),
        ({"remotes": {"generator": {"url": ["http://b"], "model": "n"}}}, "was 'm' and is now 'n'"),
        ({"sources": {}}, None),
        ({"remotes": {"generator": {"url": ["http://b"], "model": "m"}}}, None),
        ({"remotes": {"generator": {"url": ["http://b"]}}}, None),
        ({"remotes": {}, "server": "embedded", "command": ["tts"]}, None),
    ],
)
def test_a_run_goes_on_only_as_it_was_asked_for(tmp_path, changed, said):
    if said is None:
        check_same(BEFORE | changed, BEFORE, tmp_path)
        return
    with pytest.raises(RunError, match=said):
        check_same(BEFORE | changed, BEFORE, tmp_path)


def test_a_run_keeps_the_command_that_has_begun_it(tmp_path):
    before = {**WHOLE, "command": ["tts", "bench", "demo"]}
    config = parse_config(before, tmp_path)
    assert config.command == before["command"]
    assert config.to_json() == before
    assert "command" not in RunConfig().to_json(), "a program has none"
