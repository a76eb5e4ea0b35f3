"""scripts/run robustness.mutants: the mutants that it draws, and what it says of them."""

import ast
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts.robustness.mutants import reach, runs, trials
from scripts.robustness.mutants.edits import edits, function_around, lines_run_with
from scripts.robustness.mutants.runs import copied, replaced

ROOT = Path(__file__).resolve().parents[2]
MODULES = [module for prefix in trials.MUTATED for module in trials.modules_below(ROOT, prefix)]


def mutants_of(source):
    return {edit.applied(source) for edit in edits(source)}


@pytest.mark.slow
def test_every_mutant_is_another_program():
    for mutant in trials.draw(ROOT, MODULES, 200, seed=0):
        source = (ROOT / mutant.module).read_text(encoding="utf-8")
        changed = ast.dump(ast.parse(mutant.edit.applied(source)))
        assert changed != ast.dump(ast.parse(source)), mutant


@pytest.mark.parametrize(
    ("source", "mutants"),
    [
        ("a < b", {"a <= b"}),
        ("x = 3", {"x = 4", "x = 2"}),
        ("x: int = f(a, b, c)", {"x: int = f(b, a, c)"}),
        ("f(True, *a)", {"f(False, *a)"}),
        ("f(a, a)", set()),
        ("a and not b", {"a or not b", "a and b"}),
        ("[x for x in y if x]", {"[x for x in y if not x]"}),
        ("if a:\n    b", {"if not a:\n    b"}),
        ("if a == b:\n    c", {"if a != b:\n    c"}),
        ("'é' + s", {"'é' - s"}),
        (
            "def f() -> 'a < b':\n    'doc'\n    g()\n    return 0",
            {
                "def f() -> 'a < b':\n    'doc'\n    pass\n    return 0",
                "def f() -> 'a < b':\n    'doc'\n    g()\n    return 1",
                "def f() -> 'a < b':\n    'doc'\n    g()\n    return -1",
            },
        ),
        ("@dataclass(frozen=True)\nclass A(B, tag=1):\n    'doc'\n    b: Literal[1]", set()),
    ],
)
def test_mutants_are_small_changes_of_code_alone(source, mutants):
    assert mutants_of(source) == mutants


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 50))
def test_the_draw_depends_on_the_seed_alone(seed, count):
    modules = MODULES[:3]
    drawn = trials.draw(ROOT, modules, count, seed)
    assert drawn == trials.draw(ROOT, modules[::-1], count, seed)
    assert len(set(drawn)) == count


@pytest.mark.parametrize(
    ("old", "lines"),
    [
        ("1", {1, 2, 3}),  # a decorator, and what the statement defines at import
        ("True", {1, 2, 3}),
        ("a < b", {5, 9}),  # the condition, not what it guards; no tracer reports `else`
        ("2", {6, 7, 8}),  # one expression over several lines
        ("h(4)", {10}),
    ],
)
def test_an_edit_runs_with_the_statement_around_it(old, lines):
    source = """@cached(1)
def f(
    a=True, b=None):
    'doc'
    if a < b:
        g(
            2,
        )
    else:
        h(4)
"""
    assert {lines_run_with(source, edit) for edit in edits(source) if edit.old == old} == {
        frozenset(lines)
    }


SUMS = "orchestrator/tts/sums/sums.py"
TEST_SUMS = "tests/sums/test_sums.py"


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """A small repository: a module and a file of tests. Its recordings are kept for these tests."""
    root, kept = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("kept")
    files = {
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['server', 'slow']\n",
        SUMS: """LIMIT = 5

def total(a, b):
    return a + b

def never():
    return 7

def to_one(n):
    while n > 1:
        n -= 1
""",
        "tests/sums/conftest.py": """import tts.sums.sums

class Deprecated:  # as torch has them
    @property
    def __class__(self):
        raise FutureWarning("use another one")

ALIVE = [Deprecated()]
""",
        TEST_SUMS: """import pytest
from tts.sums.sums import never, to_one, total

def test_total():
    assert total(1, 2) == 3

@pytest.mark.parametrize("n", [0, 3])
def test_to_one(n):
    to_one(n)

@pytest.mark.slow
def test_never():
    assert never() == 7
""",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reach.tempfile, "tempdir", str(kept))
        yield root


@pytest.fixture
def changing(sums, tmp_path):
    """A copy of it, to be changed."""
    return shutil.copytree(sums, tmp_path / "root")


@pytest.mark.slow  # pytest in processes of their own
def test_a_recording_says_which_fast_tests_reach_a_line(sums):
    reached = reach.reach(sums)
    total, zero, three = (f"{TEST_SUMS}::test_{n}" for n in ("total", "to_one[0]", "to_one[3]"))
    assert reached.tests_of(SUMS, [4]) == [total]
    assert set(reached.tests_of(SUMS, [10])) == {zero, three}
    assert reached.tests_of(SUMS, [11]) == [three]
    assert reached.tests_of(SUMS, [7]) == []
    assert set(reached.tests_of(SUMS, [1])) == {total, zero, three}, "executed at import"
    assert set(reached.tests_beside(SUMS)) == {total, zero, three}


@pytest.mark.slow  # pytest in processes of their own
def test_a_recording_is_made_again_when_a_test_has_changed(sums, changing):
    assert len(reach.reach(sums).seconds) == 3
    with (changing / TEST_SUMS).open("a") as file:
        file.write("\ndef test_more():\n    assert total(2, 2) == 4\n")
    assert len(reach.reach(changing).seconds) == 4


@pytest.mark.slow  # pytest in processes of their own
def test_tests_that_fail_without_a_mutant_are_refused(changing):
    with (changing / TEST_SUMS).open("a") as file:
        file.write("\ndef test_wrong():\n    assert total(2, 2) == 5\n")
    with pytest.raises(RuntimeError, match="Without a mutant"):
        reach.reach(changing)


@pytest.mark.slow  # pytest in processes of their own
def test_what_no_test_notices_survives(sums):
    reached = reach.reach(sums)
    outcomes = {}
    with copied(sums) as copy, runs.Forks(sums, copy, reached.seconds) as forks:
        for mutant in trials.draw(sums, [SUMS], 20, seed=0):
            if mutant.edit.new in ("a - b", "8", "6", "4"):
                outcomes[mutant.edit.old, mutant.edit.new] = trials.trial(
                    sums, copy, forks, reached, mutant
                )
    assert outcomes == {
        ("a + b", "a - b"): "killed",
        ("5", "4"): "survived",
        ("5", "6"): "survived",
        ("7", "6"): "not reached",
        ("7", "8"): "not reached",
    }


@pytest.mark.slow  # pytest in processes of their own
def test_a_mutant_that_hangs_is_noticed_and_leaves_the_copy_as_it_was(sums):
    source = (sums / SUMS).read_text()
    hangs = next(edit for edit in edits(source) if edit.new == "pass")
    function = function_around(source, hangs)
    limits = {f"{TEST_SUMS}::test_to_one[3]": 1.0}
    with copied(sums) as copy, runs.Forks(sums, copy, limits) as forks:
        change = runs.Change(str(copy / SUMS), hangs.applied(source), function)
        assert forks.outcome(limits, change) == "timed out"
        assert forks.outcome(limits) == "survived"
        with replaced(copy / SUMS, hangs.applied(source)):
            assert runs.outcome(sums, copy, limits) == "timed out"
        assert runs.outcome(sums, copy, limits) == "survived"


@pytest.mark.slow  # pytest in processes of their own
def test_a_mutant_that_cannot_be_imported_is_killed(sums):
    """Not even by what prepares the tests."""
    limits = {f"{TEST_SUMS}::test_total": 60.0}
    with copied(sums) as copy, replaced(copy / SUMS, "raise ValueError"):
        assert runs.outcome(sums, copy, limits) == "killed"


@pytest.mark.parametrize(
    ("old", "function"),
    [
        ("1", None),  # a default, executed at import
        ("2", ("A.f", 2)),
        ("3", ("A.f", 2)),  # of a function inside of it
        ("4", None),
        ("5", ("g", 8)),
    ],
)
def test_an_edit_is_in_the_body_of_a_function_or_in_none(old, function):
    source = """class A:
    @staticmethod
    def f(a=1):
        b = 2
        return lambda: 3
    c = 4

@cached
async def g():
    return 5
"""
    found = {function_around(source, edit) for edit in edits(source) if edit.old == old}
    assert found == {function}
