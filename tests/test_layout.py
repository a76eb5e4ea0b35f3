"""The shape of the project: one namespace, layers that import downwards only, no circles."""

import ast
import os
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOTS = ("build", "engines", "triton_repo", "orchestrator")
LAYERS = (
    # what everybody imports: errors, files, worker processes
    "base",
    # compile, run in process, serve
    "build",
    "engines",
    "serving",
    # what all of the orchestrator knows
    "problem",
    "plugins",
    # what is searched, what answers, what an answer must look like
    "search",
    "endpoints",
    "constraints",
    # order of work, token ids, answers
    "scheduling",
    "prompting",
    "grading",
    # what there is to choose from
    "strategies",
    "datasets",
    # the runtime
    "driver",
    # runs and all that is derived from them; what can be checked without engines
    "runs",
    "checks",
    # the servers of a deployment: found, started, connected, and work routed among them
    "fleet",
    # a program's engines and searches
    "session",
    # experiments: benchmark runs, studies, tuning, simulation
    "lab",
    # what people see
    "reports",
    # a service for others
    "gateway",
    "cli",
)
"""Every part of the namespace, lowest first: each imports itself and parts before it only."""
PURE = {"search", "scheduling", "fleet.routing", "base.choices"}
"""Packages and modules without IO, clock, asyncio or engine."""

CORE_MAY_IMPORT = {
    "abc",
    "__future__",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "math",
    "operator",
    "pydantic",
    "typing",
}


def modules():
    for root in SOURCE_ROOTS:
        for file in sorted((ROOT / root / "tts").rglob("*.py")):
            name = ".".join(file.relative_to(ROOT / root).with_suffix("").parts)
            yield name.removesuffix(".__init__"), file


pytestmark = pytest.mark.xdist_group("layout")  # each module is parsed once
MODULES = dict(modules())


@cache
def imports(name, file):
    """Absolute names of everything a module imports, at the top or inside functions."""
    found = []
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            found += (f"{base}.{alias.name}" for alias in node.names)
    return found


def module_of(imported):
    """The module that an imported name is, or is in; None if it is not ours."""
    while imported.startswith("tts.") and imported not in MODULES:
        imported = imported.rpartition(".")[0]
    return imported if imported in MODULES else None


def package_of(name):
    """The package that a module is in, or is."""
    return name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]


def test_tts_has_one_init_file_which_finds_the_other_roots():
    """`from tts import Session` needs a regular package, and Python takes the first that it finds.

    One __init__.py therefore, in the root that every user of those names has, and in it extend_path
    for the packages of the other roots; a second one would hide it, or it the second. Where only
    lower roots can be imported, as in a server's Python models, tts is a PEP 420 namespace of them.

    pyright does not know extend_path: beside a regular package it takes no folder for a part of tts
    that is none itself. In a checkout each of the other roots therefore has an empty __init__.pyi,
    which neither Python nor mypy reads; a wheel has one folder tts, and none of them.
    """
    roots = [ROOT / root for root in SOURCE_ROOTS]
    for root in roots:
        assert not (root / "__init__.py").exists(), f"{root}/__init__.py makes the root a package"
        only = root.name == "orchestrator"
        assert (root / "tts" / "__init__.py").exists() == only
        assert (root / "tts" / "py.typed").exists() == only, "pyright prefers the typed one"
        assert (root / "tts" / "__init__.pyi").exists() == (not only)


def test_every_part_has_its_layer():
    assert {name.split(".")[1] for name in MODULES if name != "tts"} == set(LAYERS)


def test_nothing_imports_the_names_of_the_top():
    """They are for users; the parts name each other, so that the layers can be told."""
    for name, file in MODULES.items():
        assert "tts" not in {module_of(each) for each in imports(name, file)}, name


@pytest.mark.parametrize("part", LAYERS)
def test_imports_point_down(part):
    allowed = set(LAYERS[: LAYERS.index(part) + 1])
    for name, file in MODULES.items():
        if name.split(".")[1:2] == [part]:
            for imported in imports(name, file):
                if imported.startswith("tts."):
                    assert imported.split(".")[1] in allowed, f"{name} imports {imported}"


def refuse_circles(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_modules_import_each_other_in_a_circle():
    graph = {
        name: {module_of(each) for each in imports(name, file)} - {None, name}
        for name, file in MODULES.items()
    }
    for package in [name for name, file in MODULES.items() if file.name == "__init__.py"]:
        graph[package] = set()  # it gathers its modules' names; those who use them name it
    refuse_circles(graph)


def test_no_packages_import_each_other_in_a_circle():
    """A package may choose among the packages inside it, as tts.build does among its targets."""
    graph = {}
    for name, file in MODULES.items():
        here = package_of(name)
        there = {package_of(module_of(each)) for each in imports(name, file) if module_of(each)}
        inside = {each for each in there if each.startswith(f"{here}.")}
        graph[here] = graph.get(here, set()) | (there - inside - {here})
    refuse_circles(graph)


PARENTS = sorted({package_of(name).rpartition(".")[0] for name in MODULES if name != "tts"} - {""})


@pytest.mark.parametrize("parent", [each for each in PARENTS if each != "tts"])
def test_no_parts_of_a_package_import_each_other_in_a_circle(parent):
    """A package inside counts as one part, a module beside it as one.

    Imports for type checkers alone count as well.
    """
    graph = {}
    for name, file in MODULES.items():
        if name.startswith(f"{parent}."):
            there = filter(None, map(module_of, imports(name, file)))
            parts = {part_of(each, parent) for each in there if each.startswith(f"{parent}.")}
            here = part_of(name, parent)
            graph[here] = graph.get(here, set()) | (parts - {here})
    refuse_circles(graph)


def part_of(name, parent):
    """The part of a package that a module is, or is in."""
    return name.removeprefix(f"{parent}.").partition(".")[0]


@pytest.mark.parametrize("package", sorted(PURE))
def test_the_core_imports_no_io_no_clock_no_engine(package):
    for name, file in MODULES.items():
        if is_in(name, {package}):
            for imported in imports(name, file):
                pure = imported.split(".")[0] in CORE_MAY_IMPORT
                pure = pure or is_in(imported, PURE)
                assert pure, f"{name} imports {imported}"


def is_in(name, packages):
    """Whether a module or a name of a module belongs to one of these packages."""
    return any(f"{name}.".startswith(f"tts.{package}.") for package in packages)


def test_the_simulated_engine_is_pure():
    allowed = (CORE_MAY_IMPORT - {"pydantic"}) | {"numpy", "pathlib"}
    for name, file in MODULES.items():
        if name.startswith("tts.engines.simulated"):
            for imported in imports(name, file):
                ours = imported.startswith(("tts.engines.simulated.", "tts.base.", "tts.build."))
                assert ours or imported.split(".")[0] in allowed, f"{name} imports {imported}"


def test_the_help_of_no_command_imports_anything_heavy():
    code = (
        "import sys\n"
        "from typer.main import get_command\n"
        "from tts.cli import app\n"
        "def look(command):\n"
        "    assert command.help and command.params is not None\n"
        "    for each in getattr(command, 'commands', {}).values(): look(each)\n"
        "look(get_command(app))\n"
        "heavy = {'numpy', 'openvino', 'grpc', 'torch', 'transformers', 'sympy', 'pydantic'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_the_process_of_an_engine_imports_no_deployment():
    """A fifth of its start."""
    code = "import sys, tts.engines.engine_process, tts.engines.engine"
    code += "; sys.exit('tts.build.spec' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_openvino_does_not_report_usage(tmp_path):
    code = "import tts.base, openvino, openvino_genai"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "HOME": str(tmp_path)},
        check=True,
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_every_test_module_is_collected():
    """Pytest leaves out folders by name (build among them) unless it is told not to."""
    code = """
import pytest
class Names:
    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path):
        if (yield):
            print("collected", file_path)
        return []  # and nothing is imported
pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider"], plugins=[Names()])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    collected = {line.partition("collected ")[2] for line in done.stdout.splitlines()}
    files = {str(file) for file in (ROOT / "tests").rglob("test_*.py")}
    assert files - collected == set(), done.stdout[-2000:] + done.stderr


@pytest.fixture(scope="module")
def shared():
    """What a module's tests share."""


@pytest.mark.server
def test_tests_of_real_servers_that_share_something_stay_together(request, shared):
    if getattr(request.config.option, "loadgroup", False):  # as scripts/test asks for it
        assert request.node.nodeid.endswith("@layout")
