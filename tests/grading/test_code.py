"""Answers in code: how they are read, and whether their tests pass."""

import asyncio

import pytest
from tests.build.sandboxes import OPEN

from tts.build.spec import ExecutionSpec
from tts.grading import Outcome
from tts.grading.code import CodeGrader, extract_code
from tts.grading.code import tests_of as code_tests

PROMPT = 'from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    """The sum."""\n'
HUMANEVAL = {
    "prompt": PROMPT,
    "entry_point": "total",
    "test": "def check(candidate):\n    assert candidate([1, 2]) == 3\n",
}
MBPP = {
    "test_list": ["assert total(xs) == 3"],
    "test_setup_code": "xs = [one, 2]",
    "test_imports": ["from operator import truth as one; one = one(1)"],
}
RIGHT = "def total(xs: List[int]) -> int:\n    return sum(xs)"
PLAIN = "def total(xs):\n    return sum(xs)"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nf = 1\n```\nor\n```\nf = 2\n\n    g = 3\n```\nDone.", "f = 2\n\n    g = 3"),
        ("Here:\n```py\nf = 1", "f = 1"),
        ("~~~\na = '```'\n~~~", "a = '```'"),
        ("    return 1\n", "    return 1"),
        ("<think>\n```\nno\n```\n</think>\n```\nyes\n```", "yes"),
        ("<think>\n```\nno\n```", None),
        ("```\n\n```", None),
        ("\n", None),
    ],
)
def test_code_is_the_last_fenced_block_or_the_whole_completion(text, code):
    assert extract_code(text) == code


@pytest.mark.parametrize(
    ("extra", "code", "passes"),
    [
        (HUMANEVAL, RIGHT, True),
        (HUMANEVAL, "    return sum(xs)", True),
        (HUMANEVAL, "    return 3 * len(xs)", False),
        (MBPP, PLAIN, True),
        (MBPP, "def total(xs):\n    print('a' * 100_000)\n    return sum(xs)", True),
        (MBPP, "def total(xs):\n    return 4", False),
        (MBPP, "def total(xs", False),
        (MBPP, "raise SystemExit(0)", False),
        (MBPP, "import os; os._exit(0)", False),
        (MBPP, "while True: pass", False),
    ],
)
def test_code_is_right_if_its_tests_are_reached_and_pass(extra, code, passes):
    grader = CodeGrader(ExecutionSpec(sandbox=OPEN, cpu_s=1))
    grader.require()
    verdict = asyncio.run(grader.passes(code_tests(extra), code))
    assert verdict.outcome is (Outcome.EQUAL if passes else Outcome.DIFFERENT)


@pytest.mark.parametrize("extra", [{}, {"test_list": []}, {"test_list": [1]}, {"test": "check"}])
def test_what_has_no_tests_is_no_code_problem(extra):
    assert code_tests(extra) is None
