"""Run folders that are kept: whatever is derived from them stays what it was.

Numbers that are wanted otherwise are written by `python -m tests.golden.record`.
"""

import json

import pytest
from tests.golden.cases import cases
from tests.golden.folders import EXPECTED, differences, plain, unpacked

CASES = cases()


def test_nothing_is_expected_that_is_not_derived():
    kept = {str(file.relative_to(EXPECTED).with_suffix("")) for file in EXPECTED.rglob("*.json")}
    assert kept == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_what_is_derived_from_a_folder_is_what_it_was(name, tmp_path):
    now = plain(CASES[name](tmp_path), tmp_path)
    before = json.loads((EXPECTED / f"{name}.json").read_text())
    assert "\n".join(differences(now, before)) == ""


def test_whatever_changed_in_what_is_derived_is_seen():
    before = {"a": [1, {"b": "x"}], "c": None}
    assert not list(differences(before, before))
    for change in ({"a": [2, {"b": "x"}]}, {"a": [1.0, {"b": "x"}]}, {"a": [1]}, {"d": None}):
        assert len(list(differences({**before, **change}, before))) == 1
    assert len(list(differences({"c": None}, before))) == 1


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (("run", "report", "trace"), b'"tokens":8', b'"tokens":9'),
        (("run", "report", "trace"), b'"prompt_tokens":13', b'"prompt_tokens":14'),
        (("run", "report", "trace"), b'"score":0.9', b'"score":0.8'),
        (("run",), b'"answers":{"best":"', b'"answers":{"best":"1'),
        (("report",), b'"stop":"end"', b'"stop":"length"'),
        (("run", "report", "trace"), b'"why":"dependency"', b'"why":"budget"'),
    ],
)
def test_a_number_that_changed_in_a_log_is_seen(kind, before, after, tmp_path, monkeypatch):
    def changed_in(log):
        assert before in log
        return log.replace(before, after)

    def other(name, where):
        return unpacked(name, where, changed_in)

    monkeypatch.setattr("tests.golden.cases.unpacked", other)
    for each in kind:
        where = tmp_path / each
        now = plain(CASES[f"{each}/decoupled"](where), where)
        assert list(differences(now, json.loads((EXPECTED / f"{each}/decoupled.json").read_text())))
