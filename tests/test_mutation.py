"""scripts/mutants: the mutants that it draws, and what it says of them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts.mutation import trials
from scripts.mutation.edits import edits

ROOT = Path(__file__).resolve().parents[1]
MODULES = [module for prefix in trials.TESTS for module in trials.modules_below(ROOT, prefix)]


def mutants_of(source):
    return {edit.applied(source) for edit in edits(source)}


@pytest.mark.parametrize("module", MODULES)
def test_every_mutant_is_another_program(module):
    source = (ROOT / module).read_text(encoding="utf-8")
    original = ast.dump(ast.parse(source))
    for edit in edits(source):
        assert ast.dump(ast.parse(edit.applied(source))) != original, edit


@pytest.mark.parametrize(
    ("source", "mutants"),
    [
        ("a < b", {"a <= b"}),
        ("x = 3", {"x = 4", "x = 2"}),
        ("x: int = f(a, b, c)", {"x: int = f(b, a, c)"}),
        ("f(True, *a)", {"f(False, *a)"}),
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


def test_a_module_without_tests_is_refused():
    command = [sys.executable, ROOT / "scripts" / "mutants", "orchestrator/tts/cli/main.py"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "no tests are named for orchestrator/tts/cli/main.py" in refused.stderr


def test_what_no_test_notices_survives(tmp_path):
    module = "orchestrator/tts/sums.py"
    (tmp_path / "orchestrator" / "tts").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / module).write_text("def total(a, b):\n    return a + b\n\n\nLIMIT = 5\n")
    (tmp_path / "test_sums.py").write_text(
        "from tts.sums import total\n\n\ndef test_total():\n    assert total(1, 2) == 3\n"
    )
    outcomes = {}
    for mutant in trials.draw(tmp_path, [module], 10, seed=0):
        with trials.copied(tmp_path) as copy, trials.applied(copy, mutant):
            said = trials.outcome(tmp_path, copy, ["test_sums.py"], limit_s=60)
        outcomes[mutant.edit.new] = said
    assert outcomes == {"a - b": "killed", "6": "survived", "4": "survived"}
