"""The shape of the project: the namespace stays a namespace, and dependencies point down."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOTS = ("build", "engines", "triton_repo", "orchestrator")
PACKAGES = {  # package -> what it may import of tts besides itself
    "tts.build": set(),
    "tts.engines": {"tts.build"},
    "tts.serving": {"tts.build", "tts.engines"},
    "tts.orchestrator": {"tts.build", "tts.engines", "tts.serving"},
}
# inside the orchestrator: part -> parts it may import besides itself
ORCHESTRATOR = {
    "search": set(),
    "scheduling": {"search"},
    "grading": set(),
    "runlog": set(),
    "efficiency": {"runlog"},
    "problem": set(),
    "endpoints": set(),
    "prompts": set(),
    "steps": {"search"},
    "clients": {"endpoints"},
    "context": {"prompts", "problem", "search", "steps"},
    "load": set(),
    "speculation": {"scheduling", "search"},
    "driver": {"context", "endpoints", "load", "problem", "scheduling", "search", "speculation"},
    "replay": {"context", "endpoints", "problem", "prompts", "runlog", "saved", "search"},
    "simulation": {
        "context",
        "driver",
        "endpoints",
        "policy",
        "problem",
        "replay",
        "scheduling",
        "search",
        "strategies",
    },
    "lint": {"prompts", "steps"},
    "tuning": {"context", "endpoints", "problem", "runlog", "scheduling", "search"},
}
CORE_MAY_IMPORT = {
    "abc",
    "__future__",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "hashlib",
    "heapq",
    "itertools",
    "math",
    "pydantic",
    "typing",
}


def modules():
    for root in SOURCE_ROOTS:
        for file in sorted((ROOT / root / "tts").rglob("*.py")):
            name = ".".join(file.relative_to(ROOT / root).with_suffix("").parts)
            yield name.removesuffix(".__init__"), file


def imports(name, file):
    """Absolute names of everything a module imports, at the top or inside functions."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def test_the_namespace_has_no_init_file():
    roots = [ROOT / root for root in SOURCE_ROOTS]
    for folder in [*roots, *(root / "tts" for root in roots)]:
        assert not (folder / "__init__.py").exists(), f"{folder}/__init__.py hides the other roots"


def test_every_package_is_typed_and_none_is_empty():
    for package in PACKAGES:
        found = [name for name, _ in modules() if name.startswith(package + ".")]
        assert found, f"no module of {package}"
    for root in SOURCE_ROOTS:
        assert list((ROOT / root / "tts").glob("*/py.typed")), f"no py.typed under {root}"


@pytest.mark.parametrize("package", PACKAGES)
def test_dependencies_between_packages_point_down(package):
    allowed = PACKAGES[package] | {package}
    for name, file in modules():
        if name.startswith(package):
            for imported in imports(name, file):
                if imported.startswith("tts."):
                    owner = ".".join(imported.split(".")[:2])
                    assert owner in allowed, f"{name} imports {imported}"


@pytest.mark.parametrize("part", ORCHESTRATOR)
def test_dependencies_inside_the_orchestrator_point_down(part):
    allowed = ORCHESTRATOR[part] | {part}
    seen = False
    for name, file in modules():
        if name.split(".")[1:3] == ["orchestrator", part]:
            seen = True
            for imported in imports(name, file):
                words = imported.split(".")
                if words[:2] == ["tts", "orchestrator"] and len(words) > 2:
                    assert words[2] in allowed, f"{name} imports {imported}"
    assert seen, f"no module tts.orchestrator.{part}"


@pytest.mark.parametrize("part", ["search", "scheduling"])
def test_the_core_imports_no_io_no_clock_no_engine(part):
    for name, file in modules():
        if name.startswith(f"tts.orchestrator.{part}"):
            for imported in imports(name, file):
                top = imported.split(".")[0]
                assert top in CORE_MAY_IMPORT or imported.startswith("tts.orchestrator."), (
                    f"{name} imports {imported}"
                )


def test_the_simulated_engine_is_pure():
    allowed = (CORE_MAY_IMPORT - {"pydantic"}) | {"numpy", "pathlib"}
    for name, file in modules():
        if name.startswith("tts.engines.simulated"):
            for imported in imports(name, file):
                ours = imported.startswith(("tts.engines.simulated.", "tts.build."))
                assert ours or imported.split(".")[0] in allowed, f"{name} imports {imported}"


def test_help_does_not_import_anything_heavy():
    code = (
        "import sys; sys.argv = ['tts', '--help']\n"
        "from tts.orchestrator.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'openvino', 'grpc', 'torch', 'transformers', 'sympy', 'pydantic'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_openvino_does_not_report_usage(tmp_path):
    code = "import tts.build, openvino, openvino_genai"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "HOME": str(tmp_path)},
        check=True,
    )
    assert list(tmp_path.iterdir()) == []


def test_every_test_module_is_collected():
    """Pytest leaves out folders by name (build among them) unless it is told not to."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    collected = {line.partition("::")[0] for line in done.stdout.splitlines()}
    files = {str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py")}
    assert files - collected == set()
