"""Trials of mutants: whether the tests that reach a changed line notice the change."""

from __future__ import annotations

import difflib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .edits import Edit, edits, function_around, lines_run_with
from .reach import Reach
from .runs import Change, Forks, Outcome, outcome, replaced

MUTATED = (
    "orchestrator/tts/search/",
    "orchestrator/tts/scheduling/",
    "orchestrator/tts/driver/",
    "orchestrator/tts/runs/",
    "orchestrator/tts/grading/",
    "engines/tts/engines/admission.py",
    "engines/tts/engines/generate_request.py",
    "engines/tts/engines/prefix_guard.py",
    "engines/tts/engines/statistics.py",
    "engines/tts/engines/wire.py",
    "engines/tts/engines/simulated/",
    "build/tts/build/tensorrt/engine_memory.py",
    "build/tts/build/tensorrt/kv_split.py",
    "build/tts/build/tensorrt/memory_plan.py",
)
"""What is mutated unless another path is given: what decides trees, answers and plans."""


@dataclass(frozen=True)
class Mutant:
    """One edit of one module, which is named by its path from the repository's root."""

    module: str
    edit: Edit


def draw(root: Path, modules: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """So many different mutants of the modules, or all if there are fewer; the same by seed."""
    mutants = [
        Mutant(module, edit)
        for module in sorted(modules)
        for edit in edits((root / module).read_text(encoding="utf-8"))
    ]
    return random.Random(seed).sample(mutants, min(count, len(mutants)))


def modules_below(root: Path, prefix: str) -> list[str]:
    """The modules in a folder, or the module itself."""
    path = root / prefix
    files = path.rglob("*.py") if path.is_dir() else [path]
    return sorted(str(file.relative_to(root)) for file in files)


def diff(root: Path, mutant: Mutant) -> str:
    """What the mutant changes, as a unified diff without context."""
    source = (root / mutant.module).read_text(encoding="utf-8")
    old, new = source.splitlines(), mutant.edit.applied(source).splitlines()
    lines = difflib.unified_diff(old, new, mutant.module, mutant.module, n=0, lineterm="")
    return "\n".join(lines)


def trial(root: Path, copy: Path, forks: Forks, reached: Reach, mutant: Mutant) -> Outcome:
    """What the tests of `root` that reach the mutant's line say of it, put into a copy.

    What runs only in a process of its own is traced by nobody: the tests of its package are run.
    """
    file = copy / mutant.module
    source = (root / mutant.module).read_text(encoding="utf-8")
    changed = mutant.edit.applied(source)
    lines = lines_run_with(source, mutant.edit)
    tests = reached.tests_of(mutant.module, lines)
    limits = reached.limits(tests or reached.tests_beside(mutant.module))
    function = function_around(source, mutant.edit)
    said = None
    with replaced(file, changed):
        if function and tests and not reached.at_import(mutant.module, lines):
            said = forks.outcome(limits, Change(str(file), changed, function))
        said = said or outcome(root, copy, limits)
    return "not reached" if said == "survived" and not tests else said
