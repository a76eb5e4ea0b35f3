"""Rows of HumanEval and MBPP, with the fields that were published."""

import json

import pytest

from tts.base.errors import DatasetError
from tts.datasets.load import load_dataset
from tts.runs.folder import read_problems, write_problems

HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": "def one():\n    '''One.'''\n",
    "entry_point": "one",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}
MBPP = {
    "text": "Write a function to add.",
    "code": "def add(a, b):\n    return a + b",
    "task_id": 11,
    "test_setup_code": "",
    "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
    "challenge_test_list": [],
}
SANITIZED = {
    "source_file": "Benchmark.ipynb",
    "task_id": 2,
    "prompt": "Write a function to add.",
    "code": "def add(a, b):\n    return a + b",
    "test_imports": ["import math"],
    "test_list": ["assert add(1, 2) == 3"],
}


@pytest.fixture
def load(tmp_path):
    def loaded(row):
        file = tmp_path / "code.jsonl"
        file.write_text(json.dumps(row) + "\n")
        return load_dataset(str(file))

    return loaded


@pytest.mark.parametrize(
    ("row", "solution", "fields", "shown"),
    [
        (HUMANEVAL, "canonical_solution", ["prompt", "entry_point", "test"], "```python\ndef one"),
        (MBPP, "code", ["test_list"], "assert add(0, 0) == 0"),
        (SANITIZED, "code", ["prompt", "test_list", "test_imports"], "assert add(1, 2) == 3"),
    ],
)
def test_a_row_is_a_problem_with_its_tests(load, tmp_path, row, solution, fields, shown):
    (problem,) = load(row).problems
    assert (problem.id, problem.answer) == (str(row["task_id"]), row[solution])
    assert problem.extra == {name: row[name] for name in fields}
    assert shown in problem.question
    assert row[solution] not in problem.question
    write_problems(tmp_path, [problem])
    assert read_problems(tmp_path) == [problem]


def test_its_tests_are_part_of_what_is_asked(load):
    other = {**MBPP, "test_list": ["assert add(1, 2) == 3", "assert add(0, 1) == 1"]}
    fewer = {**HUMANEVAL, "test": "def check(c):\n    assert c()\n"}
    assert load(HUMANEVAL).digest != load(fewer).digest
    assert load(MBPP).digest != load(other).digest


@pytest.mark.parametrize(
    "row",
    [
        {**MBPP, "test_list": []},
        {**MBPP, "test_list": [1]},
        {**MBPP, "text": ""},
        {**MBPP, "test_list": ["print(add(1, 2))"]},
        {"problem": "Add.", "extra": {"test_list": ["assert add(1, 2) = 3"]}},
    ],
)
def test_a_row_that_cannot_be_run_is_refused(load, row):
    with pytest.raises(DatasetError, match="line 1 has"):
        load(row)


def test_any_file_may_say_what_a_verifier_gets(load):
    (problem,) = load({"problem": "Why?", "answer": "7", "extra": {"units": "m"}}).problems
    assert (problem.question, problem.answer, problem.extra) == ("Why?", "7", {"units": "m"})
