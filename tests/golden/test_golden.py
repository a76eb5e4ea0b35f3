"""Run folders of every version of the log: whatever is derived from them stays what it was.

Numbers that are wanted otherwise are written by `python -m tests.golden.record`.
"""

import json

import pytest
from tests.golden.cases import cases
from tests.golden.folders import EXPECTED, differences, plain

CASES = cases()


def test_nothing_is_expected_that_is_not_derived():
    kept = {str(file.relative_to(EXPECTED).with_suffix("")) for file in EXPECTED.rglob("*.json")}
    assert kept == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_what_is_derived_from_a_folder_is_what_it_was(name, tmp_path):
    now = plain(CASES[name](tmp_path), tmp_path)
    before = json.loads((EXPECTED / f"{name}.json").read_text())
    assert "\n".join(differences(now, before)) == ""
