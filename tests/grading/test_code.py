"""Answers in code: which block is the answer, and whether its tests pass."""

import asyncio
import textwrap

import pytest
from tests.build.sandboxes import BUBBLEWRAP, OPEN

from tts.base.errors import DatasetError
from tts.build.spec import ExecutionSpec
from tts.grading import Outcome, Reason
from tts.grading.code import (
    CodeGrader,
    ProblemTests,
    extract_code,
    require_tests,
    uses_introspection,
)
from tts.grading.code import tests_of as code_tests

PROMPT = 'from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    """The sum."""\n'
HUMANEVAL = {
    "prompt": PROMPT,
    "entry_point": "total",
    "test": "def check(candidate):\n    assert candidate([1, 2]) == 3 and not candidate([])\n",
}
MBPP = {
    "test_list": ["assert total(xs) == 3", "assert 0 <= total([]) < 0.1"],
    "test_setup_code": "xs = [one, 2]",
    "test_imports": ["from operator import truth as one; one = one(1)"],
}
RIGHT = "def total(xs: List[int]) -> int:\n    return sum(xs)"
PLAIN = "def total(xs):\n    return sum(xs)"
WRONG = "def total(xs):\n    return 4"
USAGE = "```python\nprint(total([1]))\n```\nOutput:\n```\n1\n```\n```bash\npython total.py\n```"
FENCED = f"```python\n{PLAIN}\n```"
FORMS = {
    "fence": f"Here:\n{FENCED}\nDone.",
    "usage behind it": f"{FENCED}\n{USAGE}",
    "corrected": f"```python\n{WRONG}\n```\nNo:\n{FENCED}\n{USAGE}",
    "thought": f"<think>\n```\n{WRONG}\n```\n</think>\n```\n{PLAIN}\n```",
    "cut off": f"Here:\n```py\n{PLAIN}",
    "tildes": f"~~~\n{PLAIN}\n~~~\nDone.",
    "nested": f"````markdown\nHere:\n{FENCED}\n````",
    "CRLF": f"Here:\n{FENCED}\nDone.\n".replace("\n", "\r\n"),
    "list item": f"1. Code:\n{textwrap.indent(FENCED, '   ')}\n2. Done.",
    "indented": f"```python\n{textwrap.indent(PLAIN, '    ')}\n```",
    "tags": f"[PYTHON]\n{PLAIN}\n[/PYTHON]\n[TESTS]\nassert True\n[/TESTS]",
    "prose": f"Sure, here it is:\n\n{PLAIN}\n\nThis works since Python's sum is right.",
    "script": f'"""Adds.\n\nAll, that is.\n"""\nimport sys\n\n{PLAIN}\n\nx = total([\n    1,\n])',
    "alone": PLAIN,
}


@pytest.fixture(autouse=True)
def _ends_are_logged(caplog):
    caplog.set_level("DEBUG", "tts.grading.code")


def passes(extra, code, *, solution=None, kind=OPEN, cpu_s=10):
    grader = CodeGrader(ExecutionSpec(sandbox=kind, cpu_s=cpu_s))

    async def graded():
        if solution:
            return await ProblemTests(grader, code_tests(extra), solution, "one").passes(code)
        return await grader.passes(code_tests(extra), code)

    return asyncio.run(graded())


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_is_the_last_block_that_defines_what_the_tests_call(form):
    code = extract_code(FORMS[form], code_tests(MBPP).names)
    assert PLAIN in code
    assert not set(code) & set("`~")
    assert "Done" not in code
    assert "works" not in code
    compile(code, "code", "exec")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nf = 1\n```\nor\n```\nf = 2\n\n    g = 3\n```\nDone.", "f = 2\n\n    g = 3"),
        ("~~~\na = '```'\n~~~", "a = '```'"),
        ("    return 1\n", "    return 1"),
        ("<think>\n```\nno\n```", None),
        ("```\n\n```", None),
        ("\n", None),
    ],
)
def test_where_none_does_it_is_the_last_block_or_the_whole_completion(text, code):
    assert extract_code(text) == extract_code(text, ["other"]) == code


@pytest.mark.parametrize(
    ("extra", "code", "is_right"),
    [
        (HUMANEVAL, RIGHT, True),
        (HUMANEVAL, "    return sum(xs)", True),
        (HUMANEVAL, "return sum(xs)", True),
        (HUMANEVAL, f"from __future__ import annotations\n{RIGHT}", True),
        (HUMANEVAL, "    return 3 * len(xs)", False),
        (MBPP, PLAIN, True),
        (MBPP, "def total(xs):\n    print('a' * 100_000)\n    return sum(xs)", True),
        (MBPP, WRONG, False),
        (MBPP, "def total(xs", False),
    ],
)
def test_code_is_right_if_its_tests_are_reached_and_pass(extra, code, is_right):
    verdict = passes(extra, code)
    assert verdict.outcome is (Outcome.EQUAL if is_right else Outcome.DIFFERENT)


def test_code_that_does_not_end_is_wrong():
    assert passes(MBPP, "while True: pass", cpu_s=1).outcome is Outcome.DIFFERENT


COMPARED = """
    def __eq__(self, other): return True
    __ge__ = __le__ = __lt__ = __gt__ = __eq__
    __hash__ = None
    def __bool__(self): return False
"""
DECEPTIONS = [
    "raise SystemExit(0)",
    "import os; os._exit(0)",
    "def total(xs): raise SystemExit(0)",
    "def total(xs):\n    import os; os._exit(0)",
    f"class Any:{COMPARED}def total(xs): return Any()",
    f"class Any(int):{COMPARED}def total(xs): return Any(7)",
    f"class Meta(type):{COMPARED}class Any(metaclass=Meta):{COMPARED}def total(xs): return Any()",
    """
class Any(int):
    def __reduce__(self): return eval, ("3",)
def total(xs): return Any(7)
""",
    """
import builtins
abs = sum = len = lambda *_: 0
builtins.AssertionError = int
def total(xs): return 7
""",
    """
import gc, sys
def is_test(value): return "assert " in str(value) and "__" not in str(value)
def total(xs):
    frame = sys._getframe()
    while frame := frame.f_back:
        if frame.f_code.co_name == "check" or any(map(is_test, frame.f_locals.values())):
            return 3 if xs else 0
    for value in gc.get_objects():
        if type(value) in (dict, list, tuple) and len(value) < 9 and is_test(value):
            return 3 if xs else 0
    return 7
""",
    """
import os
def total(xs):
    for number in range(3, 20):
        try: os.write(number, b"yes"); os.close(number)
        except OSError: pass
    os._exit(0)
""",
    "import os, signal\ndef total(xs): os.kill(os.getppid(), signal.SIGTERM)",
]


@pytest.mark.parametrize("extra", [HUMANEVAL, MBPP])
@pytest.mark.parametrize("code", DECEPTIONS)
def test_code_that_deceives_its_tests_is_wrong(extra, code):
    code = code if "def total" in code else f"{code}\n{RIGHT}"
    assert passes(extra, code).outcome is Outcome.DIFFERENT


@pytest.mark.parametrize("kind", [BUBBLEWRAP])
def test_the_memory_of_the_tests_is_closed_to_the_answer(kind):
    code = """
import os
def total(xs):
    try: open(f"/proc/{os.getppid()}/mem")
    except PermissionError: return sum(xs)
"""
    assert passes(MBPP, code, kind=kind).equal


@pytest.mark.parametrize(
    ("tests", "code"),
    [
        ("assert f(2) == {2: 1}", "from collections import Counter\ndef f(x): return Counter([x])"),
        (
            "assert f(2) == (2, 1)",
            "from collections import namedtuple as n\ndef f(x): return n('N', 'a b')(x, 1)",
        ),
        (
            "assert f(2) == 2",
            "from enum import IntEnum\nclass E(IntEnum): A = 2\ndef f(x): return E(x)",
        ),
        ("assert f({1, 2}) == {1}", "def f(x): return {1: 2}.keys()"),
        ("assert list(f(3)) == [0, 1, 2]", "def f(x): yield from range(x)"),
        ("x = [2, 1]\nf(x)\nassert x == [1, 2]", "def f(x): x.sort()"),
        (
            "assert f([P(1), P(2)]) == 3 and P(4).x == 4",
            "class P:\n    def __init__(s, x): s.x = x\ndef f(ps): return sum(p.x for p in ps)",
        ),
        (
            "s = f()\ns.push(1)\nassert len(s) == 1 and s.top() == 1 and str(s) == '[1]'",
            """
class f:
    def __init__(self): self.x = []
    def push(self, x): self.x.append(x)
    def top(self): return self.x[-1]
    def __len__(self): return len(self.x)
    def __str__(self): return str(self.x)
""",
        ),
        (
            "try: f(1)\nexcept ValueError as error: assert str(error) == 'no'\nelse: assert False",
            "def f(x):\n    class Mine(ValueError): pass\n    raise Mine('no')",
        ),
        ("assert f(lambda x: x + 1, 2) == 3", "def f(g, x): return g(x)"),
        ("assert sum(1, 2) == 3", "def sum(a, b): return a + b"),
    ],
)
def test_values_cross_as_what_they_are_and_objects_are_used_from_afar(tests, code):
    assert passes({"test_list": [tests]}, code).equal
    assert not passes({"test_list": [f"{tests}\nassert f is None"]}, code).equal


def test_where_the_published_solution_fails_nothing_is_decided(caplog):
    broken = {"test_list": ["assert total([1]) == 2"]}
    apart_fails = {"test_list": ["assert total.__code__ and type(total).__name__ == 'function'"]}
    assert passes(broken, WRONG, solution=PLAIN).reason is Reason.BROKEN_TESTS
    assert "problem one: its published solution fails" in caplog.text
    assert passes(apart_fails, PLAIN, solution=PLAIN).equal
    assert passes(MBPP, WRONG, solution=PLAIN).outcome is Outcome.DIFFERENT


@pytest.mark.parametrize("extra", [{}, {"test_list": []}, {"test_list": [1]}, {"test": "check"}])
def test_what_has_no_tests_is_no_code_problem(extra):
    assert code_tests(extra) is None


@pytest.mark.parametrize(
    ("extra", "fault"),
    [
        ({**MBPP, "test_imports": "import os"}, "test_imports 'import os'; they must be a list"),
        ({**MBPP, "test_setup_code": "x = ("}, "no Python"),
        ({**MBPP, "test_list": ["assert total(1) = 1"]}, "no Python"),
        ({**MBPP, "test_list": [*MBPP["test_list"], " "]}, "asserts nothing: ''"),
        ({**MBPP, "test_list": ["# none"]}, "asserts nothing"),
        ({**MBPP, "test_list": ["print(total([1]) == 1)"]}, "asserts nothing"),
        ({**MBPP, "test_list": ["assert 1 == 1"]}, "use nothing of an answer"),
        ({**HUMANEVAL, "test": "assert total([]) == 0"}, "without the function check"),
        ({**HUMANEVAL, "test": "def check(candidate):\n    pass"}, "asserts nothing"),
        ({**HUMANEVAL, "entry_point": "the sum"}, "entry_point 'the sum', which is no name"),
    ],
)
def test_tests_that_cannot_be_run_or_say_nothing_are_refused(extra, fault):
    with pytest.raises(DatasetError, match="line 7 has ") as refused:
        require_tests(extra, "file, line 7")
    assert fault in refused.value.message


@pytest.mark.parametrize("extra", [{}, HUMANEVAL, MBPP])
def test_other_tests_are_taken(extra):
    require_tests(extra, "file, line 7")


def test_code_that_looks_at_its_tests_is_noticed():
    assert uses_introspection("import gc")
    assert uses_introspection("class A:\n    def __eq__(self, other): ...")
    assert not uses_introspection("def f(dna):\n    gc = dna.count('G')\n    return gc == 2")
