"""What a program's own mypy sees of an installed tts: modules with types, programs that fit."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [ROOT / name / "tts" for name in ("build", "engines", "triton_repo", "orchestrator")]
PAGES = (ROOT / "README.md", ROOT / "docs" / "reference" / "python.md")


def test_everything_directly_in_tts_is_a_typed_package() -> None:
    """Of several folders, py.typed counts for its own only, so a plain module would be untyped."""
    for source in SOURCES:
        top = {"__pycache__", "__init__.py", "__init__.pyi", "py.typed"}
        names = [path for path in source.iterdir() if path.name not in top]
        assert names
        assert [path for path in names if not (path / "py.typed").is_file()] == []


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy has learnt of the packages for the page before."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_programs_of_the_page_have_types(page: Path, tmp_path: Path, cache: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    assert checked("\n".join(blocks), tmp_path, cache) == ""


@pytest.mark.slow  # starts mypy anew, which checks the programs of examples anyway
def test_the_names_of_the_top_have_types_and_a_slip_is_seen(tmp_path: Path, cache: Path) -> None:
    program = """
import tts

words: list[str] = []
with tts.Session.open("demo") as session:
    words += [session.solve(tts.Problem("1", "Compute 12 + 30.")).answer or ""]
words += [tts.__version__]
tts.Sesion
"""
    assert 'program.py:8: error: Module has no attribute "Sesion"' in checked(
        program, tmp_path, cache
    )
    assert "program.py:7" not in checked(program, tmp_path, cache)


def checked(program: str, folder: Path, cache: Path) -> str:
    """What `mypy --strict` has against a program, out of reach of this repository's settings."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    done = subprocess.run(
        [*command, "--cache-dir", str(cache), "program.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr
