"""Draw mutants of the code by seed and report those that no test notices.

A mutant is one small change: a comparison moved, a number off by one, a condition inverted, a
statement left out, two arguments swapped, True for False. It is put into a copy of the source
roots, and of the fast tests those that execute its line should fail: tests of its package first,
then the fastest. Which ones these are is recorded once with coverage.py, and kept in --work until
the code or a test changes. A survivor is shown as a diff: it is equivalent, or a test is missing.

    scripts/run robustness.mutants --seed 1 --count 200 --jobs 2
    scripts/run robustness.mutants --count 20 orchestrator/tts/search --tests tests/search
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import math
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("build", "engines", "triton_repo", "orchestrator")
FAST = ("-m", "not server and not slow", "-p", "no:cacheprovider", "--timeout=0")
NEAR_S, FAR_S = 120.0, 30.0
"""Seconds of tests that a mutant meets at most: of its own package, and of others."""
PLUGIN = """
import json, os, pathlib, collections, coverage, pytest
folder = pathlib.Path(os.environ["RECORDED"])
measured = coverage.Coverage(data_file=str(folder / "lines"), config_file=False,
                             include=[os.environ["SOURCES"]])
seconds = collections.defaultdict(float)
measured.start()
@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    measured.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        measured.switch_context("")
def pytest_runtest_logreport(report):
    seconds[report.nodeid] += float("inf") if report.failed else report.duration
def pytest_sessionfinish():
    measured.stop()
    measured.save()
    (folder / "seconds.json").write_text(json.dumps(seconds))
"""
"""A pytest plugin: which lines each test executes, with its id as the context, and its seconds."""
SWAPS: dict[type[ast.AST], ast.AST] = {
    ast.Lt: ast.LtE(), ast.LtE: ast.Lt(), ast.Gt: ast.GtE(), ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(), ast.NotEq: ast.Eq(), ast.Is: ast.IsNot(), ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(), ast.NotIn: ast.In(), ast.Add: ast.Sub(), ast.Sub: ast.Add(),
    ast.Mult: ast.Div(), ast.Div: ast.Mult(), ast.FloorDiv: ast.Mult(),
    ast.And: ast.Or(), ast.Or: ast.And(),
}  # fmt: skip
DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Continue, ast.Break, ast.Raise)
"""Statements that may become `pass`."""


@dataclass(frozen=True)
class Mutant:
    """A module, by its path from the repository's root, and its source with one change."""

    module: str
    lines: tuple[int, int]
    """The first and the last of the statement that differs."""
    source: str

    def diff(self) -> str:
        """What it changes, without context."""
        old = (ROOT / self.module).read_text(encoding="utf-8").splitlines()
        new, name = self.source.splitlines(), self.module
        return "\n".join(difflib.unified_diff(old, new, name, name, n=0, lineterm=""))


def mutants_of(module: str) -> Iterator[Mutant]:
    """Every mutant of a module; annotations, docstrings and what a class is declared to be stay."""
    source = (ROOT / module).read_text(encoding="utf-8")
    data, starts = source.encode(), [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for statement, node, new in _changes(ast.parse(source), None, in_function=False):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        changed = data[:begin] + ast.unparse(new).encode() + data[end:]
        yield Mutant(module, statement, changed.decode())


def _changes(
    node: ast.AST, statement: tuple[int, int] | None, *, in_function: bool
) -> Iterator[tuple[tuple[int, int], ast.expr | ast.stmt, ast.AST]]:
    """Nodes below this one that something else may replace, with the statement around each."""
    in_function = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if isinstance(node, ast.stmt):
        body = getattr(node, "body", None)  # of a compound statement its head alone
        last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        statement = (node.lineno, max(node.lineno, last))
        constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if in_function and isinstance(node, DROPPED) and not constant:
            yield statement, node, ast.Pass()
        if constant:
            return
    if isinstance(node, ast.expr) and statement:
        for new in _other_expressions(node):
            yield statement, node, new
    if isinstance(node, ast.If | ast.While | ast.IfExp) and statement:
        yield statement, node.test, ast.UnaryOp(ast.Not(), node.test)
    for name, value in ast.iter_fields(node):
        declared = isinstance(node, ast.ClassDef) and name in ("decorator_list", "keywords")
        if declared or name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from _changes(child, statement, in_function=in_function)


def _other_expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, [operator], [right]):
            yield ast.Compare(left, [SWAPS[type(operator)]], [right])  # type: ignore[list-item]
        case ast.BinOp(left, operator, right) if type(operator) in SWAPS:
            yield ast.BinOp(left, SWAPS[type(operator)], right)  # type: ignore[arg-type]
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(SWAPS[type(operator)], values)  # type: ignore[arg-type]
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)) if value + 1 != value:
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Call(function, [first, second, *rest], keywords) if not any(
            isinstance(argument, ast.Starred) for argument in (first, second)
        ):
            yield ast.Call(function, [second, first, *rest], keywords)


def copied(folder: Path) -> Path:
    """A copy of the source roots' code; what else is beside it is linked."""
    (folder / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")  # a checkout is told by it
    for name in SOURCE_ROOTS:
        (folder / name).mkdir()
        for entry in (ROOT / name).iterdir():
            if entry.name == "tts":
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(entry, folder / name / "tts", ignore=ignored)
            elif entry.name == "deployments":  # they name checkpoints from where they are
                shutil.copytree(entry, folder / name / entry.name)
            else:
                (folder / name / entry.name).symlink_to(entry)
    return folder


def pytest(copy: Path, limit_s: float | None, *words: str, **variables: str) -> int:
    """The exit status of the tests on a copy; what they have started is killed, and so are they."""
    path = os.pathsep.join([*(str(copy / name) for name in SOURCE_ROOTS), str(copy)])
    fixed = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *FAST, *words],
        cwd=ROOT,
        env={**os.environ, **fixed, "HYPOTHESIS_PROFILE": "unshrunk", **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return -signal.SIGALRM
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def recorded(work: Path, tests: Sequence[str]) -> tuple[CoverageData, dict[str, float]]:
    """Which tests execute which lines, and their seconds; recorded if anything has changed."""
    digest = hashlib.sha256("\n".join(tests).encode())
    for name in (*(f"{each}/tts" for each in SOURCE_ROOTS), "tests"):
        for file in sorted((ROOT / name).rglob("*.py")):
            digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    folder = work / digest.hexdigest()[:16]
    if not (folder / "seconds.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
            copy = copied(Path(temporary))
            (copy / "recording.py").write_text(PLUGIN)
            words = ["-p", "recording", *tests]
            pytest(copy, None, *words, RECORDED=str(folder), SOURCES=f"{copy}/*")
            if not (folder / "seconds.json").exists():
                sys.exit("The tests could not be run without a mutant.")
    data = CoverageData(str(folder / "lines"))
    data.read()
    seconds: dict[str, float] = json.loads((folder / "seconds.json").read_text())
    if failed := [test for test, duration in seconds.items() if math.isinf(duration)]:
        print("Left out, as they fail without a mutant:", *failed, sep="\n", flush=True)
    return data, {test: duration for test, duration in seconds.items() if test not in failed}


def tests_of(mutant: Mutant, data: CoverageData, seconds: dict[str, float]) -> list[str]:
    """The tests that execute a line of the mutant's statement: of its package, then the fastest.

    What runs only when a module is imported, or in another process, has the package's tests.
    """
    package = f"tests/{mutant.module.split('/tts/')[-1].split('/')[0]}"
    beside = {test for test in seconds if test.startswith((f"{package}/", f"{package}."))}
    (file,) = [f for f in data.measured_files() if f.endswith(f"/{mutant.module}")] or [""]
    by_line = data.contexts_by_lineno(file) if file else {}
    first, last = mutant.lines
    reached = {test for line in range(first, last + 1) for test in by_line.get(line, ())}
    reached &= {"", *seconds}
    near = reached & beside if reached - {""} else beside
    selection: list[str] = []
    for group, most_s in ((near, NEAR_S), (reached - beside - {""}, FAR_S)):
        for test in sorted(group, key=lambda test: seconds.get(test, 0.0)):
            most_s -= seconds.get(test, 0.0)
            if most_s > 0:
                selection.append(test)
    return selection


def main() -> None:
    """Draw mutants, try them, and print the survivors and a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", default=SOURCE_ROOTS, help="modules or folders")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200, help="mutants [200]")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time [1]")
    parser.add_argument("--tests", nargs="+", default=[], help="folders or files of tests [all]")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "tts-mutants"))
    options = parser.parse_args()
    names = [
        ROOT / name / "tts" if name in SOURCE_ROOTS else ROOT / name for name in options.modules
    ]
    files = [file for name in names for file in ([name] if name.is_file() else name.rglob("*.py"))]
    every = [m for file in sorted(files) for m in mutants_of(str(file.relative_to(ROOT)))]
    sample = random.Random(options.seed).sample(every, min(options.count, len(every)))
    data, seconds = recorded(options.work, options.tests)
    places: queue.SimpleQueue[Path] = queue.SimpleQueue()
    table: Counter[tuple[str, str]] = Counter()

    def trial(mutant: Mutant) -> None:
        tests, copy = tests_of(mutant, data, seconds), places.get()
        file = copy / mutant.module
        original = file.read_text(encoding="utf-8")
        file.write_text(mutant.source, encoding="utf-8")
        try:
            limit_s = 120 + 10 * sum(seconds.get(test, 0.0) for test in tests)
            (copy / "tests.txt").write_text("\n".join(tests), encoding="utf-8")  # too long a line
            status = pytest(copy, limit_s, "-x", f"@{copy / 'tests.txt'}") if tests else 0
        finally:
            file.write_text(original, encoding="utf-8")
            places.put(copy)
        outcome = "not reached" if not tests else "noticed" if status else "survived"
        table[mutant.module.split("/tts/")[1].split("/")[0], outcome] += 1
        print(f"{outcome}\n{mutant.diff()}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for number in range(options.jobs):
            place = Path(folder) / str(number)
            place.mkdir()
            places.put(copied(place))
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(trial, sample))
    print(f"\nseed {options.seed}, {len(sample)} of {len(every)} mutants\n")
    for (package, outcome), count in sorted(table.items()):
        print(f"{package:16} {outcome:12} {count:5}")
    noticed = sum(count for (_, outcome), count in table.items() if outcome == "noticed")
    print(f"{'all':16} {'noticed':12} {noticed:5} {noticed / max(1, len(sample)):.1%}")


if __name__ == "__main__":
    main()
