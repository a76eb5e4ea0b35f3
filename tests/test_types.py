"""What a program's own mypy sees of an installed tts: modules with types, programs that fit."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [ROOT / name / "tts" for name in ("build", "engines", "triton_repo", "orchestrator")]
PAGES = (ROOT / "README.md", ROOT / "docs" / "reference" / "python.md")


def test_everything_directly_in_the_namespace_is_a_typed_package() -> None:
    """A namespace has no py.typed of its own, so that a plain module in it counts as untyped."""
    for source in SOURCES:
        names = [path for path in source.iterdir() if path.name != "__pycache__"]
        assert names
        assert [path for path in names if not (path / "py.typed").is_file()] == []


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy has learnt of the packages for the page before."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_programs_of_the_page_have_types(page: Path, tmp_path: Path, cache: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    (tmp_path / "program.py").write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--cache-dir",
            str(cache),
            "program.py",
        ],
        cwd=tmp_path,  # out of reach of the settings of this repository
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
